"""Answers that no judge should prefer, put before one."""

from django.db import models
from django.db.models import Q

from evals.models.judges import JudgeVersion
from evals.models.runs import RunState
from registry.ids import new_uuid
from registry.tenancy import TenantModel


class CanaryRun(TenantModel):
    """One round of canaries before a judge: answers no judge should prefer, beside a good one."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    judge = models.ForeignKey(JudgeVersion, on_delete=models.PROTECT, related_name="canary_runs")
    state = models.CharField(max_length=8, choices=RunState, default=RunState.RUNNING)
    standing = models.CharField(max_length=12, null=True)  # evals.judging.canaries.Standing; None until it is done
    sentence = models.TextField(default="", blank=True)
    results = models.JSONField(default=list)  # [{"name", "verdict", "calls": [{"order", "verdict", "raw", "error"}]}]
    num_calls = models.PositiveIntegerField(default=0)
    num_unpriced = models.PositiveIntegerField(default=0)  # calls whose cost is not known
    cost_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)  # of the priced calls; None: none is
    error = models.TextField(default="", blank=True)  # why it could not be run at all
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["judge"], condition=Q(state="running"), name="one_canary_run_at_a_time"),
        ]
        indexes = [models.Index(fields=["project", "judge", "-requested_at"], name="canaries_by_judge")]

    def __str__(self) -> str:
        return f"canaries of {self.judge}: {self.standing or self.state}"
