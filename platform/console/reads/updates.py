"""Attempts to learn: the list, and everything about one."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import OuterRef, Subquery

from feedback.models import Label
from rl_online.models import BatchSample, GateReport, UpdateMetric, UpdateRun

PAGE = 25
NUM_PREVIEWED = 50


def page_of_updates(number: str | None, policy: str | None = None) -> Page:
    latest = GateReport.objects.filter(run=OuterRef("pk")).order_by("-created_at").values("decision")[:1]
    runs = UpdateRun.objects.select_related("policy", "batch", "parent__policy", "checkpoint__policy")
    if policy:
        runs = runs.filter(policy__name=policy)
    return Paginator(runs.annotate(decision=Subquery(latest)).order_by("-created_at"), PAGE).get_page(number)


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One metric over the optimizer steps."""

    name: str
    steps: list[int]
    values: list[float | None]

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None


# Drawn first and in this order when the trainer reports them; the others follow by name, folded away.
FIRST = ("reward", "loss", "kl", "ratio_mean", "ratio_max", "clipped_share", "ess_share", "grad_norm")
FACT = "is_"  # what begins like this is yes or no, and counted instead of drawn


def curves(metrics: list[UpdateMetric]) -> list[Curve]:
    rows = [(row.step, row.values) for row in metrics]
    names = {
        name
        for _, values in rows
        for name, value in values.items()
        if isinstance(value, int | float) and not name.startswith(FACT)
    }
    ordered = [name for name in FIRST if name in names] + sorted(names - set(FIRST))
    steps = [step for step, _ in rows]
    return [Curve(name=name, steps=steps, values=[values.get(name) for _, values in rows]) for name in ordered]


def num_skipped(metrics: list[UpdateMetric]) -> int:
    """Steps whose gradient was thrown away: not finite, or from too few effective samples."""
    return sum(row.values.get("is_applied") == 0 for row in metrics)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRow:
    """One sample of the batch as the page previews it."""

    sample: BatchSample
    label: str | None  # outcome of the label it was sealed with
    reason: str | None

    @property
    def advantage(self) -> float:
        return self.sample.reward - self.sample.baseline


def samples(run: UpdateRun) -> list[SampleRow]:
    """The first samples of the batch; the same rows every time."""
    rows = list(BatchSample.objects.filter(batch=run.batch).order_by("id")[:NUM_PREVIEWED])
    labels = {label.pk: label for label in Label.objects.filter(pk__in=[row.label_id for row in rows if row.label_id])}
    return [
        SampleRow(
            sample=row,
            label=labels[row.label_id].outcome if row.label_id in labels else None,
            reason=labels[row.label_id].reason if row.label_id in labels else None,
        )
        for row in rows
    ]


def dropped(run: UpdateRun) -> list[tuple[str, int]]:
    """Why turns that were looked at are not in the batch, most frequent first."""
    return Counter(run.batch.dropped).most_common()


def effective(run: UpdateRun) -> dict[str, Any]:
    return dict(sorted(run.config.items()))
