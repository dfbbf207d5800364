"""What judges of single answers, and people, make of live turns and sessions."""

from django.db import models
from django.db.models import Q

from evals.models.judges import JudgeVersion, Subject
from registry.ids import new_uuid
from registry.tenancy import TenantModel


class RatingState(models.TextChoices):
    WAITING = "waiting"
    SCORED = "scored"
    INVALID = "invalid"  # a reply without a mark that could be read
    ERROR = "error"  # the judge could not be asked; it can be asked again
    SKIPPED = "skipped"  # not for this judge, see the reason


class LiveRating(TenantModel):
    """What one judge makes of one settled turn, or of one session as it stood when it ended.

    A session that goes on after it was judged is judged again; the older rating is superseded, and kept.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    judge = models.ForeignKey(JudgeVersion, on_delete=models.PROTECT, related_name="ratings")
    subject = models.CharField(max_length=7, choices=Subject)
    subject_ref = models.CharField(max_length=128)  # the sender's id of the turn or session
    revision = models.CharField(max_length=64, default="", blank=True)  # of a session: its turns when it ended
    rated = models.CharField(max_length=200, default="", blank=True)  # whose answer: <policy>@<version> or a model
    num_chars = models.PositiveIntegerField(default=0)  # of the answer
    state = models.CharField(max_length=8, choices=RatingState, default=RatingState.WAITING)
    value = models.FloatField(null=True)  # in [0, 1]: 0 is the floor of the scale
    mark = models.FloatField(null=True)  # on the judge's scale
    reason = models.TextField(default="", blank=True)  # why there is no value
    created_at = models.DateTimeField(auto_now_add=True)
    judged_at = models.DateTimeField(null=True)
    superseded_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "judge", "subject", "subject_ref", "revision"], name="one_rating_per_revision"
            ),
            models.UniqueConstraint(
                fields=["project", "judge", "subject", "subject_ref"],
                condition=Q(superseded_at__isnull=True),
                name="one_current_rating",
            ),
            models.CheckConstraint(
                condition=Q(state="scored", value__gte=0, value__lte=1) | (~Q(state="scored") & Q(value__isnull=True)),
                name="rating_value_iff_scored",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "subject", "subject_ref"], name="rating_of_subject"),
            models.Index(fields=["project", "judge", "-created_at"], name="rating_by_judge"),
        ]

    def __str__(self) -> str:
        return f"{self.judge} on {self.subject} {self.subject_ref}: {self.state}"


class GoldLabel(TenantModel):
    """What a person says about a turn or session that judges mark: what judges are held against."""

    subject = models.CharField(max_length=7, choices=Subject)
    subject_ref = models.CharField(max_length=128)
    value = models.FloatField()  # in [0, 1]
    by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "subject", "subject_ref", "by"], name="one_label_per_person"),
            models.CheckConstraint(condition=Q(value__gte=0, value__lte=1), name="gold_is_a_share"),
        ]

    def __str__(self) -> str:
        return f"{self.by} on {self.subject} {self.subject_ref}: {self.value:g}"
