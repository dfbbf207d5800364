"""What people say about the turns and sessions that judges mark. Inside a tenant."""

import math

from evals.models import GoldLabel, LiveRating
from registry.errors import InvalidInput, NotFound
from registry.services import audit


def find_rating(rating_id: object) -> LiveRating:
    """With its judge and calls. Raises NotFound."""
    found = LiveRating.objects.filter(pk=rating_id).select_related("judge").prefetch_related("calls").first()
    if found is None:
        raise NotFound("no such rating")
    return found


def label(rating: LiveRating, value: float, *, by: str) -> GoldLabel:
    """This person's word about the rating's turn or session; saying it again replaces it. All its judges are held
    against it. Raises InvalidInput."""
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise InvalidInput(f"is {value}; write a number from 0 to 1", field="value")
    of = {"subject": rating.subject, "subject_ref": rating.subject_ref, "by": by}
    before = GoldLabel.objects.filter(**of).values_list("value", flat=True).first()
    made, _ = GoldLabel.objects.update_or_create(**of, defaults={"value": value})
    audit("label", rating.subject, rating.subject_ref, actor=by, before=before, after=value)
    return made


def labels_of(rating: LiveRating) -> list[GoldLabel]:
    found = GoldLabel.objects.filter(subject=rating.subject, subject_ref=rating.subject_ref)
    return list(found.order_by("-created_at"))
