"""Policies brought in from elsewhere."""

from django.db import models
from django.db.models import Q

from registry.ids import new_uuid
from registry.models import Policy
from registry.tenancy import TenantModel


class ImportState(models.TextChoices):
    QUEUED = "queued"
    STORING = "storing"  # the model store checks, copies or downloads it
    REGISTERED = "registered"  # version 1 of its policy; an engine loads it next
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (ImportState.REGISTERED, ImportState.FAILED)


class PolicyImport(TenantModel):
    """A model on its way to become a policy: a Hugging Face folder, a name on the hub, or the default model."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    name = models.SlugField(max_length=60)  # of the policy to be
    source = models.CharField(max_length=500)
    plan = models.JSONField(default=dict)  # fields of its LearningPlan that differ from the defaults
    state = models.CharField(max_length=10, choices=ImportState, default=ImportState.QUEUED)
    progress = models.CharField(max_length=500, default="", blank=True)  # the store's last line
    notes = models.JSONField(default=list)  # what will not work, though the model can be used
    error = models.TextField(default="", blank=True)
    num_starts = models.PositiveIntegerField(default=0)  # of the store; one that dies is started again
    policy = models.ForeignKey(Policy, on_delete=models.SET_NULL, null=True, related_name="+")
    requested_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"], condition=Q(state__in=["queued", "storing"]), name="one_import_at_a_time"
            ),
            models.CheckConstraint(condition=Q(state__in=ImportState.values), name="import_state_known"),
        ]
        indexes = [models.Index(fields=["project", "-created_at"], name="import_by_time")]

    def __str__(self) -> str:
        return f"{self.source} as {self.name}"
