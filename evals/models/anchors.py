"""Items that judges are shown again and again, and what they said about them each time."""

from django.db import models
from django.db.models import Q

from evals.models.judges import JudgeVersion
from evals.models.runs import RunState
from registry.ids import new_uuid
from registry.tenancy import TenantModel


class AnchorSet(TenantModel):
    """Items that a judge is shown again and again, to see whether it still says the same. Never changed."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    name = models.CharField(max_length=100)
    version = models.PositiveIntegerField(default=1)
    items = models.JSONField(default=list)  # see evals.judging.anchors
    digest = models.CharField(max_length=64)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name", "version"], name="anchor_set_version")]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class AnchorRun(TenantModel):
    """One judge on one anchor set, once; nothing is taken from the cache."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    judge = models.ForeignKey(JudgeVersion, on_delete=models.PROTECT, related_name="anchor_runs")
    anchors = models.ForeignKey(AnchorSet, on_delete=models.PROTECT, related_name="runs")
    state = models.CharField(max_length=8, choices=RunState, default=RunState.RUNNING)
    results = models.JSONField(default=dict)  # key of the item -> {"state", "value" in [0, 1] or null}
    error = models.TextField(default="", blank=True)
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["judge", "anchors"], condition=Q(state="running"), name="one_anchor_run_at_a_time"
            ),
        ]
        indexes = [models.Index(fields=["project", "judge", "-requested_at"], name="anchors_by_judge")]

    def __str__(self) -> str:
        return f"{self.judge} on {self.anchors}: {self.state}"
