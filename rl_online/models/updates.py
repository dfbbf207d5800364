"""Each attempt to learn, its steps, what it made besides checkpoints, and tries that keep nothing."""

from datetime import datetime

from django.db import models
from django.db.models import Q

from registry.ids import new_uuid
from registry.models import Checkpoint, Policy
from registry.tenancy import TenantModel
from rl_online.models.batches import RewardBatch, UpdateKind


class UpdateState(models.TextChoices):
    QUEUED = "queued"
    TRAINING = "training"
    PROVING = "proving"
    WAITING = "waiting"  # passed the gate, waits for a person
    PROMOTED = "promoted"
    HELD = "held"
    DONE = "done"  # of a kind that makes no checkpoint: what it made is registered
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self not in (*OPEN_STATES, UpdateState.WAITING)


OPEN_STATES = (UpdateState.QUEUED, UpdateState.TRAINING, UpdateState.PROVING)  # one such update of a policy at a time


class UpdateRun(TenantModel):
    """One attempt to learn from one batch."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    kind = models.CharField(
        max_length=12, choices=UpdateKind, default=UpdateKind.ONLINE, db_default=str(UpdateKind.ONLINE)
    )
    options = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    # what its batch was sealed by, of the stage's options
    inputs = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    # what its training needs beside the batch, e.g. {"teacher": "editor@3"}; part of what decides the result
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="updates")
    batch = models.ForeignKey(RewardBatch, on_delete=models.PROTECT, related_name="updates")
    parent = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="+")
    checkpoint = models.OneToOneField(Checkpoint, on_delete=models.PROTECT, null=True, related_name="update")
    version = models.PositiveIntegerField()  # reserved for the checkpoint when the run is made; never reused
    state = models.CharField(max_length=9, choices=UpdateState, default=UpdateState.QUEUED)
    trigger = models.CharField(max_length=10)  # schedule | person | replay
    requested_by = models.CharField(max_length=200)
    config = models.JSONField()  # the effective UpdateConfig, all fields
    config_digest = models.CharField(max_length=64)
    seed = models.BigIntegerField()
    step = models.PositiveIntegerField(default=0)
    num_steps = models.PositiveIntegerField(null=True)
    seconds_left = models.FloatField(null=True)
    tokens_per_s = models.FloatField(null=True)
    is_cancel_requested = models.BooleanField(default=False)
    is_replay = models.BooleanField(default=False)
    error = models.TextField(default="", blank=True)
    timings = models.JSONField(default=dict)  # stage -> seconds
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    held = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    # [start, end] of each process that trained it, ISO; the end of one that was killed is its last sign of life

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["policy", "version"], name="update_version_reserved_once"),
            models.UniqueConstraint(
                fields=["policy"], condition=Q(state__in=["queued", "training", "proving"]), name="one_update_at_a_time"
            ),
            models.CheckConstraint(condition=Q(state__in=UpdateState.values), name="update_state_known"),
            models.CheckConstraint(condition=Q(kind__in=UpdateKind.values), name="update_kind_known"),
        ]
        indexes = [models.Index(fields=["project", "-created_at"], name="update_by_time")]

    def __str__(self) -> str:
        if UpdateKind(self.kind).makes_checkpoint:
            return f"update to {self.policy.name}@{self.version}"
        return f"{self.get_kind_display().lower()} of {self.policy.name}, run {self.version}"

    @property
    def held_spans(self) -> list[tuple[datetime, datetime]]:
        return [(datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in self.held]


class UpdateMetric(TenantModel):
    """The numbers of one optimizer step; written again with the same values when a killed run starts over."""

    run = models.ForeignKey(UpdateRun, on_delete=models.CASCADE, related_name="metrics")
    step = models.PositiveIntegerField()
    values = models.JSONField()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "step"], name="one_row_per_step")]

    def __str__(self) -> str:
        return f"step {self.step}"


class RewardModel(TenantModel):
    """A network that scores answers, made by an update of kind reward_model; PPO is trained against it."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="reward_models")
    run = models.OneToOneField(UpdateRun, on_delete=models.CASCADE, related_name="reward_model")
    part = models.CharField(max_length=5)  # of the people it learnt from: all, proxy or gold
    tree_digest = models.CharField(max_length=64)
    folder = models.CharField(max_length=200)  # below the home's checkpoints
    num_bytes = models.PositiveBigIntegerField()
    report = models.JSONField()  # of training.pair_report.PairReport, with num_trained, num_heldout and part
    created_at = models.DateTimeField(auto_now_add=True)
    files_deleted_at = models.DateTimeField(null=True)
    files_deleted_reason = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(part__in=["all", "proxy", "gold"]), name="reward_model_part_known")
        ]
        indexes = [models.Index(fields=["project", "-created_at"], name="reward_model_by_time")]

    def __str__(self) -> str:
        return f"reward model {self.run.version} of {self.policy.name}"


class DryRunState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self not in (DryRunState.QUEUED, DryRunState.RUNNING)


class DryRun(TenantModel):
    """A few samples trained for a look at the numbers. It has no version and no batch: nothing is kept or spent."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="dry_runs")
    parent = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="+")  # whose weights were tried
    kind = models.CharField(max_length=12)  # as of RewardBatch
    options = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))  # of the stage
    state = models.CharField(max_length=9, choices=DryRunState, default=DryRunState.QUEUED)
    requested_by = models.CharField(max_length=200)
    config = models.JSONField()  # the effective UpdateConfig, all fields
    num_samples = models.PositiveIntegerField(null=True)  # None: not looked at yet
    num_tokens = models.PositiveIntegerField(null=True)
    steps = models.JSONField(default=list)  # the numbers of each optimizer step, first to last
    load_s = models.FloatField(null=True)  # until the weights were in memory
    seconds = models.FloatField(null=True)  # of the steps alone
    tokens_per_s = models.FloatField(null=True)
    peak_bytes = models.PositiveBigIntegerField(null=True)  # most memory the updater held meanwhile, on `device`
    device = models.CharField(max_length=40, default="", blank=True)
    error = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["policy"], condition=Q(state__in=["queued", "running"]), name="one_dry_run_at_a_time"
            ),
            models.CheckConstraint(condition=Q(state__in=DryRunState.values), name="dry_run_state_known"),
        ]
        indexes = [models.Index(fields=["policy", "-created_at"], name="dry_run_by_time")]

    def __str__(self) -> str:
        return f"dry run of {self.policy}"
