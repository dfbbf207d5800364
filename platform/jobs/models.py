"""Rows of durable work, and of the processes that do it. `project_id` is a plain column: this room knows nobody."""

from django.db import models
from django.db.models import Q


class JobState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    QUARANTINED = "quarantined"


class Job(models.Model):
    """One piece of work: asked for in the transaction that made it necessary, done exactly once in effect."""

    kind = models.CharField(max_length=100)
    queue = models.CharField(max_length=40, default="default")
    project_id = models.UUIDField(null=True)
    payload = models.JSONField(default=dict)
    key = models.CharField(max_length=300, null=True)  # at most one queued job per (kind, key)
    state = models.CharField(max_length=12, choices=JobState, default=JobState.QUEUED)
    run_at = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)  # counted before work starts, so that kill -9 counts
    fence = models.PositiveBigIntegerField(default=0)  # grows with every claim; an older holder's effect is refused
    lease_until = models.DateTimeField(null=True)
    worker = models.CharField(max_length=200, default="", blank=True)
    last_error = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "key"], condition=Q(state="queued"), name="one_queued_job_per_key"),
            models.CheckConstraint(condition=Q(state__in=JobState.values), name="job_state_known"),
        ]
        indexes = [
            models.Index(fields=["queue", "run_at"], condition=Q(state="queued"), name="job_due"),
            models.Index(fields=["lease_until"], condition=Q(state="running"), name="job_leased"),
            models.Index(fields=["project_id", "kind"], condition=~Q(state="done"), name="job_not_done"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk} ({self.state})"


class ScheduleSlot(models.Model):
    """One firing of one periodic schedule, so that two beats make one run."""

    schedule = models.CharField(max_length=100)
    slot = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["schedule", "slot"], name="one_run_per_slot")]

    def __str__(self) -> str:
        return f"{self.schedule} {self.slot:%F %T}"


class ProcessBeat(models.Model):
    """The last sign of life of one process of the product."""

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=40)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=60, default="", blank=True)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    detail = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"
