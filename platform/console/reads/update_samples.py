"""The samples of an update's batch, those that pulled hardest first."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.db.models import F, QuerySet
from django.db.models.functions import Abs

from feedback.models import Label
from rl_online.models import BatchSample, RewardBatch

PAGE = 50
NUM_PREVIEWED = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRow:
    """One sample of the batch as a page shows it."""

    sample: BatchSample
    label: str | None  # outcome of the label it was sealed with
    reason: str | None

    @property
    def advantage(self) -> float:
        return self.sample.reward - self.sample.baseline


def page_of_samples(batch: RewardBatch, number: str | None) -> Page:
    """One page of rows, by the size of the advantage; the same order every time."""
    page = Paginator(_by_pull(batch), PAGE).get_page(number)
    page.object_list = _with_labels(list(page.object_list))
    return page


def strongest(batch: RewardBatch) -> list[SampleRow]:
    return _with_labels(list(_by_pull(batch)[:NUM_PREVIEWED]))


def _by_pull(batch: RewardBatch) -> QuerySet[BatchSample]:
    return BatchSample.objects.filter(batch=batch).order_by(Abs(F("reward") - F("baseline")).desc(), "id")


def _with_labels(rows: Sequence[BatchSample]) -> list[SampleRow]:
    labels = Label.objects.in_bulk([row.label_id for row in rows if row.label_id])
    return [
        SampleRow(
            sample=row,
            label=labels[row.label_id].outcome if row.label_id in labels else None,
            reason=labels[row.label_id].reason if row.label_id in labels else None,
        )
        for row in rows
    ]
