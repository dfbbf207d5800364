"""What another label recipe would have said of the turns that are stored. Looks only; nothing is written.

Both recipes are asked anew about the same turns as of now, so labels that an older version left behind are never
compared with the new one's; how many there are is said.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from feedback.intervals import Cluster, share_bounds
from feedback.labels import Recipe, Verdict, label_turn
from feedback.models import Turn
from feedback.sampling import SampledTurns, sample_turns
from feedback.services.label import signals_of

OPEN = "open"  # no recipe has a verdict yet
NUM_EXAMPLES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One turn that the two recipes tell apart."""

    turn: Turn
    before: Verdict | None  # None: open
    after: Verdict | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Turns with one outcome before and one after."""

    before: str
    after: str
    n: int
    num_other_value: int  # of them with another value all the same
    examples: list[Change]  # of turns that changed, the newest first


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Accept share of the sample under one recipe."""

    n: int
    value: float | None  # None: no settled turn
    low: float
    high: float
    interval: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Relabelled:
    """A bounded sample of turns under two recipes."""

    sampled: SampledTurns
    cells: list[Cell]  # every pair of outcomes that occurs
    before: Share
    after: Share
    num_changed: int  # other outcome or value
    label_versions: dict[int, int] = field(default_factory=dict)  # recipe version -> stored labels of the sample


def relabel(before: Recipe, after: Recipe, *, since: datetime, until: datetime) -> Relabelled:
    """The newest look at turns shown in [since, until): what each recipe says of them now."""
    now = timezone.now()
    sampled = sample_turns(since=since, until=until)
    heard, _ = signals_of(sampled.turns)
    changes = [
        Change(
            turn=turn,
            before=label_turn(heard[turn.pk], at=turn.at, closes_at=turn.settle_due, now=now, recipe=before),
            after=label_turn(heard[turn.pk], at=turn.at, closes_at=turn.settle_due, now=now, recipe=after),
        )
        for turn in sampled.turns
    ]
    return Relabelled(
        sampled=sampled,
        cells=_cells(changes),
        before=_share([(change.turn, change.before) for change in changes]),
        after=_share([(change.turn, change.after) for change in changes]),
        num_changed=sum(_differs(change) for change in changes),
        label_versions=dict(Counter(turn.label.recipe_version for turn in sampled.turns if turn.label)),
    )


def _cells(changes: Sequence[Change]) -> list[Cell]:
    grouped: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        grouped.setdefault((_outcome(change.before), _outcome(change.after)), []).append(change)
    return [
        Cell(
            before=before,
            after=after,
            n=len(group),
            num_other_value=sum(_differs(change) for change in group) if before == after else 0,
            examples=[change for change in group if _differs(change)][:NUM_EXAMPLES],
        )
        for (before, after), group in sorted(grouped.items())
    ]


def _outcome(verdict: Verdict | None) -> str:
    return OPEN if verdict is None else verdict.outcome


def _differs(change: Change) -> bool:
    before, after = change.before, change.after
    if before is None or after is None:
        return before is not after
    return (before.outcome, before.value) != (after.outcome, after.value)


def _share(labelled: Sequence[tuple[Turn, Verdict | None]]) -> Share:
    by_user: dict[object, list[bool]] = {}
    for turn, verdict in labelled:
        if verdict is not None and turn.is_shown:
            # A turn without a user is a cluster of its own.
            by_user.setdefault(turn.user or turn.pk, []).append(verdict.outcome == "accept")
    clusters = [
        Cluster(turns=len(group), accepted=sum(group), is_one_user=isinstance(user, str))
        for user, group in by_user.items()
    ]
    n = sum(cluster.turns for cluster in clusters)
    if not n:
        return Share(n=0, value=None, low=0.0, high=1.0, interval="")
    bounds = share_bounds(clusters)
    return Share(
        n=n, value=sum(c.accepted for c in clusters) / n, low=bounds.low, high=bounds.high, interval=bounds.interval
    )
