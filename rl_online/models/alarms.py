"""What needs somebody's attention."""

from django.db import models
from django.db.models import Q

from registry.tenancy import TenantModel
from rl_online.alarms import Rule


class AlarmState(models.TextChoices):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"  # somebody has seen it and looks after it
    CLOSED = "closed"  # its cause is gone, or a person said that it is dealt with


class Alarm(TenantModel):
    """Something that calls for a person; at most one of a rule and subject stands at a time."""

    rule = models.CharField(max_length=20)  # of `rl_online.alarms.Rule`
    subject = models.CharField(max_length=60, default="", blank=True)  # a policy's name; empty for the project
    severity = models.CharField(max_length=8)  # critical | warning | info
    state = models.CharField(max_length=12, choices=AlarmState, default=AlarmState.OPEN)
    summary = models.TextField()  # as last found
    about = models.CharField(max_length=300, default="", blank=True)  # which occurrence
    evidence = models.JSONField(default=dict)
    opened_at = models.DateTimeField()
    raised_at = models.DateTimeField()  # when the rule last found it
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=200, default="", blank=True)
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=200, default="", blank=True)  # empty: its cause was gone
    calm_at = models.DateTimeField(null=True)  # closed by a person, and its rule has been calm since: it may come back
    note = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "rule", "subject"], condition=~Q(state="closed"), name="one_standing_alarm"
            ),
            models.CheckConstraint(condition=Q(state__in=AlarmState.values), name="alarm_state_known"),
        ]
        indexes = [models.Index(fields=["project", "-opened_at"], name="alarm_by_time")]

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}".strip()

    @property
    def title(self) -> str:
        return Rule(self.rule).heading

    @property
    def is_standing(self) -> bool:
        return self.state != AlarmState.CLOSED
