"""Attempts to learn: one with its curves and settings, two side by side. The list is `console.lists.updates`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Avg, Count

from console import plots
from evals.models import Problem, Score
from jobs.models import Job, JobState
from registry.models import Checkpoint
from rl_online.gate.suites import Suite
from rl_online.models import LearningPlan, UpdateMetric, UpdateRun
from rl_online.rewards.update_config import UpdateConfig
from rl_online.services.answers import run_of
from rl_online.services.plans import suites_of

UPDATER_QUEUE = "updater"
HELDOUT = "heldout_"  # what begins like this was measured on samples that are never trained on
# Drawn first and in this order when the trainer reports them; the others follow by name, folded away.
FIRST = ("reward", "loss", "kl", "ratio_mean", "entropy", "ratio_max", "clipped_share", "ess_share", "grad_norm",
         "length")  # fmt: skip
ALWAYS = "guard_"  # and so is what begins like this: what a step's answers did (rl_online.training.reported)
FACT = "is_"  # what begins like this is yes or no, and counted instead of drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One metric over the optimizer steps."""

    name: str
    steps: list[int]
    values: list[float | None]
    heldout: list[float | None] | None = None  # the same, held out; None: nothing was set aside

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None

    @property
    def last_heldout(self) -> float | None:
        return self.heldout[-1] if self.heldout else None


def curves(metrics: Sequence[UpdateMetric]) -> list[Curve]:
    rows = [(row.step, row.values) for row in metrics]
    names = {
        name
        for _, values in rows
        for name, value in values.items()
        if isinstance(value, int | float) and not name.startswith(FACT)
    }
    trained = {name for name in names if not name.startswith(HELDOUT)}
    ordered = [name for name in FIRST if name in trained] + sorted(trained - set(FIRST))
    steps = [step for step, _ in rows]
    return [
        Curve(
            name=name,
            steps=steps,
            values=[values.get(name) for _, values in rows],
            heldout=[values.get(HELDOUT + name) for _, values in rows] if HELDOUT + name in names else None,
        )
        for name in ordered
    ]


def is_first(name: str) -> bool:
    """Whether a number is drawn unfolded."""
    return name in FIRST or name.startswith(ALWAYS)


def num_skipped(metrics: Sequence[UpdateMetric]) -> int:
    """Steps whose gradient was thrown away: not finite, or from too few effective samples."""
    return sum(row.values.get("is_applied") == 0 for row in metrics)


def dropped(run: UpdateRun) -> list[tuple[str, int]]:
    """Why turns that were looked at are not in the batch, most frequent first."""
    return Counter(run.batch.dropped).most_common()


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One field of an update's config, as it is written."""

    name: str
    value: str
    default: str  # empty: no longer a setting

    @property
    def is_changed(self) -> bool:
        return self.value != self.default


def written(value: Any) -> str:
    """As a person would type it: 5e-06, 0.2, 64, k2."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_of(config: Mapping[str, Any]) -> list[Setting]:
    """Changed ones first, each group in the order of UpdateConfig; what an old run did not know has its default."""
    defaults = UpdateConfig().to_json()
    known = [
        Setting(name=name, value=written(config.get(name, value)), default=written(value))
        for name, value in defaults.items()
    ]
    gone = [
        Setting(name=name, value=written(config[name]), default="") for name in sorted(config.keys() - defaults.keys())
    ]
    return sorted(known + gone, key=lambda one: not one.is_changed)


def queue_position(payload_key: str, payload_id: UUID) -> int | None:
    """How many jobs the updater does before this one, 0 when it is next; None when it does not wait."""
    queued = Job.objects.filter(queue=UPDATER_QUEUE, state=JobState.QUEUED)
    mine = queued.filter(**{f"payload__{payload_key}": str(payload_id)}).order_by("id").first()
    if mine is None:
        return None
    running = Job.objects.filter(queue=UPDATER_QUEUE, state=JobState.RUNNING).count()
    return running + queued.filter(run_at__lt=mine.run_at).exclude(id=mine.id).count()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """How far a checkpoint is with the problems of one of the gate's suites."""

    role: str  # candidate | made from
    checkpoint: str
    benchmark: str
    num_answered: int
    num_problems: int
    mean: float | None  # of those scored so far; None: none yet
    num_scored: int


def proof(run: UpdateRun) -> list[Answers]:
    """Candidate and the checkpoint it was made from on each suite; empty before there is a candidate."""
    plan = LearningPlan.objects.filter(policy=run.policy).first()
    if run.checkpoint is None or plan is None:
        return []
    sides: list[tuple[str, Checkpoint]] = [("candidate", run.checkpoint), ("made from", run.parent)]
    return [_answers(suite, role, checkpoint) for suite in suites_of(plan) for role, checkpoint in sides]


def _answers(suite: Suite, role: str, checkpoint: Checkpoint) -> Answers:
    name, _, version = suite.benchmark.rpartition("@")
    measured = run_of(suite, str(checkpoint))
    scores = Score.objects.filter(run=measured, scorer=measured.scorer) if measured else Score.objects.none()
    counted = scores.aggregate(answered=Count("id"), scored=Count("value"), mean=Avg("value"))
    return Answers(
        role=role,
        checkpoint=str(checkpoint),
        benchmark=suite.benchmark,
        num_answered=counted["answered"] or 0,
        num_problems=Problem.objects.filter(benchmark__name=name, benchmark__version=version).count(),
        mean=counted["mean"],
        num_scored=counted["scored"] or 0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two updates side by side."""

    left: UpdateRun
    right: UpdateRun
    settings: list[tuple[str, str, str, bool]]  # name, left, right, whether they differ; differing ones first
    overlays: list[tuple[str, dict[str, Any] | None]]  # name of a number, its figure

    @property
    def runs(self) -> tuple[UpdateRun, UpdateRun]:
        return self.left, self.right

    @property
    def is_same_batch(self) -> bool:
        return self.left.batch_id == self.right.batch_id


def compare(left: UpdateRun, right: UpdateRun) -> Comparison:
    metrics: dict[UUID, list[UpdateMetric]] = {left.id: [], right.id: []}
    for row in UpdateMetric.objects.filter(run__in=[left, right]).order_by("step"):
        metrics[row.run_id].append(row)
    both = [{curve.name: curve for curve in curves(metrics[run.id])} for run in (left, right)]
    names = [name for name in [*both[0], *both[1]] if is_first(name)]
    overlays = [
        (
            name,
            plots.overlay(
                [
                    plots.Series(
                        label=f"{run.policy.name}@{run.version}",
                        version=run.version,
                        steps=found[name].steps,
                        values=found[name].values,
                    )
                    for run, found in zip((left, right), both, strict=True)
                    if name in found
                ],
                name=name,
            ),
        )
        for name in dict.fromkeys(names)
    ]
    return Comparison(left=left, right=right, settings=_side_by_side(left.config, right.config), overlays=overlays)


def _side_by_side(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    defaults = UpdateConfig().to_json()
    names = [*defaults, *sorted((left.keys() | right.keys()) - defaults.keys())]
    rows = [(name, left.get(name, defaults.get(name)), right.get(name, defaults.get(name))) for name in names]
    return sorted(((name, written(a), written(b), a != b) for name, a, b in rows), key=lambda row: not row[3])


def others(run: UpdateRun, *, last: int = 20) -> list[UpdateRun]:
    """Updates of the same policy to compare with, newest first."""
    found = UpdateRun.objects.filter(policy=run.policy).exclude(id=run.id).select_related("policy")
    return list(found.order_by("-created_at")[:last])
