"""Every request to a judge, with its raw reply."""

from django.db import models
from django.db.models import Q

from evals.models.anchors import AnchorRun
from evals.models.comparisons import Comparison, VerdictKind
from evals.models.judges import JudgeVersion
from evals.models.ratings import LiveRating
from registry.tenancy import TenantModel


class JudgeCall(TenantModel):
    """One request to a judge, with its raw answer: in one order of a comparison, for a rating, or for an anchor."""

    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, null=True, related_name="calls")
    rating = models.ForeignKey(LiveRating, on_delete=models.CASCADE, null=True, related_name="calls")
    anchor_run = models.ForeignKey(AnchorRun, on_delete=models.CASCADE, null=True, related_name="calls")
    judge = models.ForeignKey(JudgeVersion, on_delete=models.PROTECT, related_name="calls")
    order = models.CharField(max_length=2, default="", blank=True)  # lr: left shown as A; rl: right shown as A
    cache_key = models.CharField(max_length=64)
    verdict = models.CharField(max_length=8, choices=[*VerdictKind.choices, ("scored", "Scored")])
    value = models.FloatField(null=True)  # of a rating, in [0, 1]
    mark = models.FloatField(null=True)  # of a rating, on the judge's scale
    raw = models.TextField(default="", blank=True)
    error = models.TextField(default="", blank=True)
    usage = models.JSONField(default=dict)
    cost_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)
    latency_ms = models.FloatField(null=True)
    is_cached = models.BooleanField(default=False)  # said before, and not asked again: no call, and no cost
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "-created_at"], name="call_by_time"),
            models.Index(fields=["project", "cache_key"], condition=Q(is_cached=False), name="call_by_key"),
            models.Index(fields=["project", "judge", "-created_at"], name="call_by_judge"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(comparison__isnull=False, rating__isnull=True, anchor_run__isnull=True)
                | Q(comparison__isnull=True, rating__isnull=False, anchor_run__isnull=True)
                | Q(comparison__isnull=True, rating__isnull=True, anchor_run__isnull=False),
                name="call_of_one_thing",
            )
        ]

    def __str__(self) -> str:
        return f"{self.order or 'rating'}: {self.verdict}"
