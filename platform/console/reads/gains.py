"""What an update bought: the cost to make and prove a checkpoint over the win rate it gained on its parent.

    cost of a point = (training + answers to benchmarks) / (100 x (win rate - 1/2))

The win rate is that of the judge version with most votes on the pair, clustered by problem; its interval gives that of
the cost. Where the lower end is no gain, the cost of a point has no upper end. Inside a tenant.
"""

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Value
from django.db.models.functions import Concat

from evals.models import Comparison, JudgeVersion, VerdictKind
from evals.standings import MAX_VOTES, RESULTS
from evals.statistics.wins import WinRate, win_rate
from registry.models import Checkpoint
from registry.pricing import Spend
from rl_online.spending.ledger import Ledger

MAX_CHECKPOINTS = 40
MADE_OF = ("training", "proving")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    name: str
    version: int
    parent: str
    spend: Spend  # to make and to prove it
    rate: WinRate
    judge: JudgeVersion

    @property
    def per_point_usd(self) -> Decimal | None:
        """None: unpriced, or no gain."""
        return self._per(self.rate.rate)

    @property
    def low_usd(self) -> Decimal | None:
        return self._per(self.rate.high)

    @property
    def high_usd(self) -> Decimal | None:
        """None: without an end, since there may be no gain at all."""
        return self._per(self.rate.low)

    def _per(self, rate: float | None) -> Decimal | None:
        if rate is None or rate <= 0.5 or self.spend.known_cost_usd is None or not self.spend.calls:
            return None
        return self.spend.cost_usd / (100 * (Decimal(str(rate)) - Decimal("0.5")))


def gains(ledger: Ledger) -> list[Gain]:
    """Of checkpoints that something was spent on in this time and that were judged against their parent."""
    spent = {entry.name for entry in ledger.entries if entry.purpose in MADE_OF and entry.policy}
    newest = Checkpoint.objects.filter(parent__isnull=False).select_related("policy", "parent__policy")
    made = [one for one in newest.order_by("-created_at")[:MAX_CHECKPOINTS] if str(one) in spent]
    pairs = {(str(one), str(one.parent)): one for one in made}
    votes: dict[tuple[str, str], dict[int, list[tuple[float | None, object]]]] = defaultdict(lambda: defaultdict(list))
    for judge, left, right, verdict, problem, pk in _said(pairs, ledger):
        is_left = (left, right) in pairs
        pair = (left, right) if is_left else (right, left)
        result = RESULTS.get(VerdictKind(verdict))
        if pair in pairs:
            points = result if is_left or result is None else 1 - result
            votes[pair][judge].append((points, ("alone", pk) if problem is None else problem))
    judges = JudgeVersion.objects.in_bulk({judge for one in votes.values() for judge in one})
    found = []
    for pair, of_judges in votes.items():
        judge, results = max(of_judges.items(), key=lambda item: (len(item[1]), item[0]))
        found.append(
            Gain(
                name=pair[0],
                version=pairs[pair].version,
                parent=pair[1],
                spend=sum((ledger.spend_of(pair[0], purpose) for purpose in MADE_OF), Spend()),
                rate=win_rate([result for result, _ in results], clusters=[cluster for _, cluster in results]),
                judge=judges[judge],
            )
        )
    return sorted(found, key=lambda one: -one.version)


def _said(pairs: dict[tuple[str, str], Checkpoint], ledger: Ledger) -> list[tuple[int, str, str, str, int | None, int]]:
    if not pairs:
        return []
    names = {name for pair in pairs for name in pair}
    sides = {f"{one} {other}" for one, other in pairs} | {f"{other} {one}" for one, other in pairs}
    said = Comparison.objects.filter(left__in=names, by="judge", set__isnull=True, created_at__gte=ledger.since)
    of_pairs = said.alias(pair=Concat("left", Value(" "), "right")).filter(pair__in=sides)  # no name has a space
    newest = of_pairs.filter(created_at__lt=ledger.until).order_by("-created_at", "-id")
    return list(newest.values_list("judge_id", "left", "right", "verdict", "problem_id", "id")[:MAX_VOTES])
