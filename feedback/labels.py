"""What the signals of one turn mean: the default label recipe, after Cursor Tab's accept, reject and silence.

| signal | outcome | value |
|---|---|---|
| accept, copy | accept | 1 |
| partial_accept, share s >= .5 | accept | s |
| partial_accept, share s < .5 | reject | s - 1 |
| thumbs 1 / thumbs -1 | accept / reject | 1 / -1 |
| edit (took it and changed it) | accept | .5 |
| reject, undo | reject | -1 |
| retry within 30 s of the turn | reject | -1 |
| correction (what it should have been) | reject | -.5 |
| ignore, abandon | silence, at once | 0 |
| nothing of these until the decision window closes | silence | 0 |
| persist, share s | scales the value of an accept by s | |
| a later retry; shown, preference, rating, metric:*, comment, follow_up | no say here | |

The last verdict (by the sender's time, then id) gives the outcome, so an undo beats the accept before it and an accept
after an undo beats that. An accept's value is the least of the accepts since the last rejection: accepted, then edited
is .5. A signal that a later one names in `supersedes`, and all but the last thumbs of one person, do not count.
Arrival order never matters. Not here: rewards, which map the outcome (rl_online.rewards).
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Literal

Outcome = Literal["accept", "reject", "silence", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The numbers of the table above; changing one is a new recipe version."""

    partial_threshold: float = 0.5  # share kept from which a partial accept is an accept
    edit_value: float = 0.5
    correction_value: float = -0.5
    retry_at_once_s: float = 30.0

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


RANGES = {  # of each number of a recipe
    "partial_threshold": (0.0, 1.0),
    "edit_value": (0.0, 1.0),
    "correction_value": (-1.0, 0.0),
    "retry_at_once_s": (0.0, 3600.0),
}


class InvalidRecipe(ValueError):
    """A recipe that cannot be used; `field` names the number that is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def parse_recipe(body: Mapping[str, Any]) -> Recipe:
    """Check a recipe as stored or posted; what it leaves out has its default. Raises InvalidRecipe."""
    known = [field.name for field in fields(Recipe)]
    for name, value in body.items():
        if name not in known:
            raise InvalidRecipe(name, f"is not known; use {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InvalidRecipe(name, f"is {value!r}; must be a finite number")
        low, high = RANGES[name]
        if not low <= value <= high:
            raise InvalidRecipe(name, f"is {value:g}; must lie in [{low:g}, {high:g}]")
    return Recipe(**{name: float(value) for name, value in body.items()})


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """One signal about the turn, as far as labels care."""

    id: str
    kind: str
    at: datetime
    value: float | None = None
    user: str | None = None
    supersedes: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a turn's signals mean so far."""

    outcome: Outcome
    value: float  # in [-1, 1]
    reason: str


def label_turn(
    signals: Sequence[Heard], *, at: datetime, closes_at: datetime | None, now: datetime, recipe: Recipe
) -> Verdict | None:
    """The label of a turn made `at`, or None while it is open.

    `closes_at` is when nothing heard becomes silence; None for a turn that nobody was shown, which never settles alone.
    """
    heard, _ = current(signals)
    verdicts = [verdict for signal in heard if (verdict := verdict_of(signal, at=at, recipe=recipe))]
    if verdicts:
        return _combined(verdicts, heard)
    for signal in reversed(heard):
        if signal.kind in ("ignore", "abandon"):
            return Verdict(outcome="silence", value=0.0, reason="ignored" if signal.kind == "ignore" else "abandoned")
    if closes_at is not None and now >= closes_at:
        return Verdict(outcome="silence", value=0.0, reason="shown, and nothing until the window closed")
    return None


def current(signals: Iterable[Heard]) -> tuple[list[Heard], list[Heard]]:
    """(signals that count, signals superseded), each by time, then id."""
    ordered = sorted(signals, key=lambda signal: (signal.at, signal.id))
    place = {signal.id: index for index, signal in enumerate(ordered)}
    gone = {
        signal.supersedes
        for index, signal in enumerate(ordered)
        if signal.supersedes is not None and place.get(signal.supersedes, index) < index
    }
    last_thumbs = {signal.user: signal.id for signal in ordered if signal.kind == "thumbs" and signal.id not in gone}
    gone |= {signal.id for signal in ordered if signal.kind == "thumbs" and last_thumbs.get(signal.user) != signal.id}
    return [s for s in ordered if s.id not in gone], [s for s in ordered if s.id in gone]


def verdict_of(signal: Heard, *, at: datetime, recipe: Recipe) -> Verdict | None:
    """What one signal alone says of a turn made `at`; None when it has no say in the outcome."""
    share = signal.value or 0.0
    match signal.kind:
        case "accept" | "copy":
            return Verdict(outcome="accept", value=1.0, reason="accepted" if signal.kind == "accept" else "copied")
        case "partial_accept" if share >= recipe.partial_threshold:
            return Verdict(outcome="accept", value=share, reason=f"{share:.0%} kept")
        case "partial_accept":
            return Verdict(outcome="reject", value=share - 1.0, reason=f"only {share:.0%} kept")
        case "thumbs":
            is_up = share > 0
            return Verdict(
                outcome="accept" if is_up else "reject", value=share, reason="thumbs up" if is_up else "thumbs down"
            )
        case "edit":
            return Verdict(outcome="accept", value=recipe.edit_value, reason="edited")
        case "correction":
            return Verdict(outcome="reject", value=recipe.correction_value, reason="corrected")
        case "reject":
            return Verdict(outcome="reject", value=-1.0, reason="rejected")
        case "undo":
            return Verdict(outcome="reject", value=-1.0, reason="undone")
        case "retry" if (signal.at - at).total_seconds() <= recipe.retry_at_once_s:
            return Verdict(outcome="reject", value=-1.0, reason="retried at once")
    return None


def _combined(verdicts: Sequence[Verdict], heard: Sequence[Heard]) -> Verdict:
    last = verdicts[-1]
    if last.outcome == "reject":
        was_accepted = any(verdict.outcome == "accept" for verdict in verdicts[:-1])
        reason = f"accepted, then {last.reason}" if was_accepted else last.reason
        return Verdict(outcome="reject", value=last.value, reason=reason)
    rejections = [index for index, verdict in enumerate(verdicts) if verdict.outcome == "reject"]
    accepts = verdicts[rejections[-1] + 1 if rejections else 0 :]
    value = min(verdict.value for verdict in accepts)
    reason = ", ".join(dict.fromkeys(verdict.reason for verdict in accepts))
    shares = [signal.value for signal in heard if signal.kind == "persist" and signal.value is not None]
    if shares:
        value, reason = value * shares[-1], f"{reason}, {shares[-1]:.0%} persisted"
    return Verdict(outcome="accept", value=value, reason=reason)
