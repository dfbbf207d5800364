"""What was decided about a checkpoint, from which evidence."""

from django.db import models

from registry.models import Checkpoint
from registry.tenancy import TenantModel
from rl_online.models.updates import UpdateRun


class GateReport(TenantModel):
    """What the gate decided about a checkpoint, from which evidence. A person's step against it is an AuditEvent."""

    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="gate_reports")
    run = models.ForeignKey(UpdateRun, on_delete=models.PROTECT, null=True, related_name="gate_reports")
    decision = models.CharField(max_length=10)  # promote | canary | extend | hold | roll_back
    reasons = models.JSONField()
    evidence = models.JSONField()
    judge = models.JSONField(default=dict)  # of a judge without a vote filled in after the decision
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["checkpoint", "-created_at"], name="report_by_checkpoint"),
            models.Index(fields=["project", "-created_at"], name="report_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.checkpoint}: {self.decision}"


class CanaryLook(TenantModel):
    """One look at a running canary: what was known then. The sequence of looks is the experiment's record."""

    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="canary_looks")
    started_at = models.DateTimeField()  # of the canary; one checkpoint may be tried more than once
    at = models.DateTimeField()
    decision = models.CharField(max_length=10)  # extend | promote | hold | roll_back
    reasons = models.JSONField()
    evidence = models.JSONField()  # live_gate.LiveDecision.to_json

    class Meta:
        indexes = [models.Index(fields=["checkpoint", "-at"], name="look_by_checkpoint")]

    def __str__(self) -> str:
        return f"{self.checkpoint} at {self.at:%F %T}: {self.decision}"
