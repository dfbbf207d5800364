"""What another reward spec would have paid for the turns that are stored. Looks only; nothing is written.

Both specs are asked about the same turns, labels and scores; rewards that batches were sealed with play no part.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from feedback.models import Outcome, Turn
from feedback.sampling import SampledTurns, sample_turns
from rl_online.collecting import rewarded, scores_of
from rl_online.rewards.composite import Reward, RewardSpec

SIGNS = ("positive", "zero", "negative", "unknown")
NUM_EXAMPLES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One turn that the two specs pay differently."""

    turn: Turn
    before: Reward
    after: Reward


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Turns by the sign of their reward before and after."""

    before: str
    after: str
    n: int
    num_changed: int  # with another reward, be its sign the same
    examples: list[Change]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeRow:
    """Mean rewards of the turns with one outcome; a turn without a reward is counted beside, never as 0."""

    outcome: str
    n: int
    mean_before: float | None
    mean_after: float | None
    num_unknown_before: int
    num_unknown_after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Repaid:
    """A bounded sample of settled turns under two specs."""

    sampled: SampledTurns
    cells: list[Cell]
    rows: list[OutcomeRow]  # by outcome, and last all together
    num_changed: int
    num_overridden: int  # a reviewer's reward stands whatever the spec says
    label_versions: dict[int, int]  # label recipe version -> turns of the sample labelled by it


def repay(before: RewardSpec, after: RewardSpec, *, since: datetime, until: datetime) -> Repaid:
    """Settled turns made in [since, until): what each spec pays for them."""
    sampled = sample_turns(since=since, until=until, is_settled=True)
    scores = scores_of([turn.turn_id for turn in sampled.turns])
    changes = [
        Change(
            turn=turn,
            before=rewarded(turn, before, scores.get(turn.turn_id, {})),
            after=rewarded(turn, after, scores.get(turn.turn_id, {})),
        )
        for turn in sampled.turns
    ]
    return Repaid(
        sampled=sampled,
        cells=_cells(changes),
        rows=_rows(changes),
        num_changed=sum(_differs(change) for change in changes),
        num_overridden=sum(turn.reward_override is not None for turn in sampled.turns),
        label_versions=dict(Counter(turn.label.recipe_version for turn in sampled.turns if turn.label)),
    )


def sign_of(reward: float | None) -> str:
    if reward is None:
        return "unknown"
    return "zero" if reward == 0 else "positive" if reward > 0 else "negative"


def _cells(changes: Sequence[Change]) -> list[Cell]:
    grouped: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        grouped.setdefault((sign_of(change.before.value), sign_of(change.after.value)), []).append(change)
    return [
        Cell(
            before=before,
            after=after,
            n=len(group),
            num_changed=sum(_differs(change) for change in group),
            examples=[change for change in group if _differs(change)][:NUM_EXAMPLES],
        )
        for (before, after), group in sorted(grouped.items(), key=lambda one: [SIGNS.index(sign) for sign in one[0]])
    ]


def _rows(changes: Sequence[Change]) -> list[OutcomeRow]:
    rows = [
        _row(outcome, group)
        for outcome in Outcome.values
        if (group := [change for change in changes if change.turn.outcome == outcome])
    ]
    return [*rows, _row("all", changes)] if len(rows) > 1 else rows


def _row(outcome: str, group: Sequence[Change]) -> OutcomeRow:
    before = [change.before.value for change in group if change.before.value is not None]
    after = [change.after.value for change in group if change.after.value is not None]
    return OutcomeRow(
        outcome=outcome,
        n=len(group),
        mean_before=math.fsum(before) / len(before) if before else None,
        mean_after=math.fsum(after) / len(after) if after else None,
        num_unknown_before=len(group) - len(before),
        num_unknown_after=len(group) - len(after),
    )


def _differs(change: Change) -> bool:
    return change.before.value != change.after.value
