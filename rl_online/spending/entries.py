"""What was spent, by whom and for what."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from registry.pricing import Spend

PURPOSES = ("inference", "rollouts", "proving", "judging", "training", "playground")
PURPOSE_OF_SOURCE = {
    "production": "inference",  # of real users alone: they are who accepts turns
    "playground": "playground",
    "simulated": "rollouts",
    "eval": "proving",
    "judge": "judging",
}  # what was imported was paid for elsewhere


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What one checkpoint or model spent for one purpose."""

    name: str  # <policy>@<version>, or a model's
    policy: str | None  # None: an external model
    version: int | None
    purpose: str
    spend: Spend
    seconds: Decimal = Decimal(0)  # of our own devices
    tokens: int | None = None  # all that were told, billed or not; None: nobody told any
    latency_seconds: Decimal = Decimal(0)  # of our own weights: the sum of latencies, at once or not
    hour: datetime | None = None  # None: of the whole span
    cards: frozenset[int] = frozenset()  # ids of the price cards that made it; what was billed when made names none

    @property
    def usd_per_latency_second(self) -> Decimal | None:
        """What a second of an answer's latency cost; None: unpriced, or nobody told how long an answer took."""
        return self.spend.cost_usd / self.latency_seconds if self.spend.is_known and self.latency_seconds else None


def merged(entries: Iterable[Entry]) -> list[Entry]:
    found: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        before = found.get((entry.name, entry.purpose))
        found[entry.name, entry.purpose] = entry if before is None else _sum(before, entry)
    return list(found.values())


def _sum(one: Entry, other: Entry) -> Entry:
    return Entry(
        name=one.name,
        policy=one.policy,
        version=one.version,
        purpose=one.purpose,
        spend=one.spend + other.spend,
        seconds=one.seconds + other.seconds,
        tokens=known_sum([one.tokens, other.tokens]),
        latency_seconds=one.latency_seconds + other.latency_seconds,
        cards=one.cards | other.cards,
    )


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """None where none is known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
