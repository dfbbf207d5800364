"""The loop's own rows: what is learned from, each attempt to learn, its proof, and what engines hold."""

from datetime import datetime

from django.db import models
from django.db.models import Q

from registry.ids import new_uuid
from registry.models import Checkpoint, Policy
from registry.tenancy import TenantModel
from rl_online.alarms import Rule


class RewardSpec(TenantModel):
    """A version of how labels and scores become a reward. Frozen once a batch used it."""

    name = models.CharField(max_length=100, default="default")
    version = models.PositiveIntegerField()
    body = models.JSONField()
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    frozen_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name", "version"], name="reward_spec_version")]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


class Promotion(models.TextChoices):
    AUTOMATIC = "automatic"  # the gate's word is carried out
    BY_PERSON = "by_person"  # a candidate that passed waits for a person


class LearningPlan(TenantModel):
    """When and how one policy learns: every N labelled turns or T minutes, with which config and which gate."""

    policy = models.OneToOneField(Policy, on_delete=models.CASCADE, related_name="plan")
    reward_spec = models.ForeignKey(RewardSpec, on_delete=models.PROTECT, related_name="+")
    every_turns = models.PositiveIntegerField(default=384)
    every_minutes = models.PositiveIntegerField(null=True)  # None: only by count
    min_turns = models.PositiveIntegerField(default=64)  # fewer are never trained on
    max_turns = models.PositiveIntegerField(default=1024)  # newest first; what is left is dropped as stale when too old
    promotion = models.CharField(max_length=10, choices=Promotion, default=Promotion.AUTOMATIC)
    is_paused = models.BooleanField(default=False)
    update_config = models.JSONField(default=dict)  # overrides of UpdateConfig's defaults
    gate_limits = models.JSONField(default=dict)  # overrides of gate.Limits' defaults
    gate_benchmark = models.CharField(max_length=120, null=True)  # <benchmark>@<version>; None: nothing to prove on
    gate_sampling = models.JSONField(default=dict)  # e.g. {"max_tokens": 20, "stop": ["\n"]}; greedy unless said
    gate_suites = models.JSONField(default=list)  # further benchmarks, see gate.suites.suites_from
    gate_judge = models.ForeignKey(  # pairwise; None: the judge of the settings, or else the first checkpoint
        "evals.JudgeVersion", on_delete=models.SET_NULL, null=True, related_name="+"
    )
    live_limits = models.JSONField(default=dict)  # overrides of live_gate.LiveLimits' defaults
    judged_pairs = models.PositiveIntegerField(default=10)  # answers a judge compares for a decision; 0: none
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"plan of {self.policy}"


class RewardBatch(TenantModel):
    """A sealed, immutable set of rewarded samples, in a folder named by its digest. Trained once."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="batches")
    digest = models.CharField(max_length=64)
    kind = models.CharField(max_length=12)  # rl | kto of the online kind, else the UpdateKind that sealed it
    reward_spec = models.ForeignKey(RewardSpec, on_delete=models.PROTECT, related_name="+")
    num_samples = models.PositiveIntegerField()
    num_tokens = models.PositiveBigIntegerField()
    reward_mean = models.FloatField()
    baselines = models.JSONField(default=dict)  # per-slice running baseline after this batch
    dropped = models.JSONField(default=dict)  # reason -> how many turns were looked at and left out
    created_at = models.DateTimeField(auto_now_add=True)
    files_deleted_at = models.DateTimeField(null=True)  # None: its folder is there
    files_deleted_reason = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "digest"], name="batch_digest_in_project")]

    def __str__(self) -> str:
        return f"batch {self.digest[:12]}"


class UpdateKind(models.TextChoices):
    """The stages of training; each has its way to seal a batch and a runner in the updater."""

    ONLINE = "online"  # what users' signals reward, or call good and bad
    SFT = "sft"
    PAIRS = "pairs"
    MIDTRAIN = "midtrain"
    REWARD_MODEL = "reward_model"
    PPO = "ppo"
    DISTILL = "distill"

    @property
    def makes_checkpoint(self) -> bool:
        """Whether a candidate comes of it, to be proven; else a run of it ends in state `done`."""
        return self is not UpdateKind.REWARD_MODEL

    @property
    def spends_turns(self) -> bool:
        """Whether its samples are turns; those of an update that comes to nothing are free again."""
        return self is not UpdateKind.MIDTRAIN


class BatchSample(TenantModel):
    """Lineage: which turn, under which label and reviewer's word, gave which reward in which batch.

    A turn is spent once for each kind, see docs/decisions/0005-a-turn-is-spent-once-for-each-kind.md.
    """

    batch = models.ForeignKey(RewardBatch, on_delete=models.CASCADE, related_name="samples")
    kind = models.CharField(
        max_length=12, choices=UpdateKind, default=UpdateKind.ONLINE, db_default=str(UpdateKind.ONLINE)
    )
    part = models.CharField(max_length=140, default="", blank=True, db_default="")
    # what it plays where a kind may learn from a turn in several ways: in a pair its side and its twin; else empty
    turn_ref = models.CharField(max_length=128)
    session_ref = models.CharField(max_length=128)
    user_hash = models.CharField(max_length=64, null=True)
    label_id = models.BigIntegerField(null=True)
    reward_revision = models.PositiveIntegerField(default=0)  # of the turn: which reviewer's word it was sealed under
    slice = models.CharField(max_length=200, default="", blank=True)
    reward = models.FloatField()
    baseline = models.FloatField(default=0.0)
    is_correction = models.BooleanField(default=False)
    is_heldout = models.BooleanField(default=False)  # measured only: spent, and never learnt

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "turn_ref", "kind", "part"],
                condition=Q(is_correction=False),
                name="turn_trained_once",
            ),
            models.UniqueConstraint(
                fields=["project", "turn_ref", "label_id", "reward_revision"],
                condition=Q(is_correction=True),
                name="correction_once",
            ),
        ]
        indexes = [models.Index(fields=["project", "user_hash"], name="sample_by_user")]

    def __str__(self) -> str:
        return f"{self.turn_ref} {self.reward:+.2f}"


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


class EngineHolding(TenantModel):
    """What an engine says it holds, by the digest it computed itself."""

    engine = models.CharField(max_length=100)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="holdings")
    tree_digest = models.CharField(max_length=64, default="", blank=True)
    error = models.TextField(default="", blank=True)  # why it could not load; empty when held
    reported_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["engine", "checkpoint"], name="one_holding_per_engine")]

    def __str__(self) -> str:
        return f"{self.engine} holds {self.checkpoint}"


class EngineReport(TenantModel):
    """What an engine last said of itself to this project. Counters run since it started; rates are made from two."""

    engine = models.CharField(max_length=100)
    code_version = models.CharField(max_length=60, default="", blank=True)
    adapter = models.CharField(max_length=40, default="", blank=True)
    device = models.CharField(max_length=100, default="", blank=True)
    host = models.CharField(max_length=200, default="", blank=True)
    pid = models.PositiveIntegerField(null=True)
    threads = models.PositiveIntegerField(null=True)
    max_batch = models.PositiveIntegerField(null=True)
    max_waiting = models.PositiveIntegerField(null=True)
    running = models.PositiveIntegerField(null=True)  # choices being decoded
    waiting = models.PositiveIntegerField(null=True)  # choices queued
    uptime_s = models.FloatField(null=True)
    tokens_generated = models.PositiveBigIntegerField(null=True)
    requests_refused = models.PositiveBigIntegerField(null=True)  # answered busy
    loads = models.PositiveIntegerField(null=True)
    load_failures = models.PositiveIntegerField(null=True)
    tokens_per_s = models.FloatField(null=True)  # between the last two reports; None: only one yet
    counted_at = models.DateTimeField(null=True)  # when `tokens_counted` was reported, the start of the next rate
    tokens_counted = models.PositiveBigIntegerField(null=True)
    reported_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "engine"], name="one_report_per_engine")]

    def __str__(self) -> str:
        return self.engine


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


class SampleHashes(TenantModel):
    """What the text of a trained turn hashes to, so that problems can be looked for in it after it is gone.

    Hashes of all its words and of its n-grams, see evals.overlap; the text cannot be made of them.
    """

    sample = models.OneToOneField(BatchSample, on_delete=models.CASCADE, related_name="hashes")
    batch = models.ForeignKey(RewardBatch, on_delete=models.CASCADE, related_name="+")
    method = models.CharField(max_length=20)  # evals.overlap.METHOD
    whole = models.BigIntegerField()  # of what was asked
    grams = models.BinaryField()  # uint64, little-endian: of what was asked and of what was answered

    def __str__(self) -> str:
        return f"hashes of {self.sample}"


class OverlapCheck(TenantModel):
    """A benchmark was looked for in a batch. One row each: written again when problems have been added."""

    benchmark = models.ForeignKey("evals.Benchmark", on_delete=models.CASCADE, related_name="+")
    batch = models.ForeignKey(RewardBatch, on_delete=models.CASCADE, related_name="+")
    rule = models.CharField(max_length=40, default="", db_default="")  # evals.overlap.RULE; "": before it was kept
    last_problem = models.BigIntegerField()  # the highest key of its problems that were looked for
    num_problems = models.PositiveIntegerField()
    num_samples = models.PositiveIntegerField()  # trained ones that were looked at
    num_without_text = models.PositiveIntegerField()  # that could not be: their text was gone before it was hashed
    checked_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["benchmark", "batch"], name="one_check_of_a_batch")]

    def __str__(self) -> str:
        return f"{self.benchmark} in {self.batch}"


class Overlap(TenantModel):
    """A problem that stands in a sealed batch, wholly or in part, and the sample that holds most of it."""

    problem = models.ForeignKey("evals.Problem", on_delete=models.CASCADE, related_name="overlaps")
    batch = models.ForeignKey(RewardBatch, on_delete=models.CASCADE, related_name="+")
    sample = models.ForeignKey(BatchSample, on_delete=models.CASCADE, related_name="+")
    share = models.FloatField()  # of its n-grams; 1 where all of its words are the same
    found_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["problem", "batch"], name="nearest_sample_of_a_batch"),
            models.CheckConstraint(condition=Q(share__gt=0, share__lte=1), name="overlap_is_a_share"),
        ]

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.problem} in {self.batch}"


class CorpusState(models.TextChoices):
    QUEUED = "queued"
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


class Corpus(TenantModel):
    """A folder of code and text made into packed rows of tokens, for mid-training; immutable once it is ready."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    name = models.SlugField(max_length=60)
    version = models.PositiveIntegerField()  # each making of a name is a new one
    made_for = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="+")  # whose tokenizer it is in
    source = models.CharField(max_length=1000)  # path below STROP_CORPUS_ROOT
    recipe = models.JSONField()  # of `rl_online.corpus.recipe.Recipe`, all fields
    state = models.CharField(max_length=8, choices=CorpusState, default=CorpusState.QUEUED)
    progress = models.JSONField(default=dict)  # while it is made: documents, tokens, dropped
    error = models.TextField(default="", blank=True)
    digest = models.CharField(max_length=64, default="", blank=True)  # also the name of its folder
    facts = models.JSONField(default=dict)  # languages -> counts, dropped -> reason -> documents, tokenizer, benchmarks
    num_rows = models.PositiveBigIntegerField(default=0)  # to train on
    num_tokens = models.PositiveBigIntegerField(default=0)  # of them
    requested_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    files_deleted_at = models.DateTimeField(null=True)  # None: its folder is there, once it is ready
    files_deleted_reason = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name", "version"], name="corpus_version_once"),
            models.CheckConstraint(condition=Q(state__in=CorpusState.values), name="corpus_state_known"),
        ]
        indexes = [models.Index(fields=["project", "-created_at"], name="corpus_by_time")]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class TeacherState(models.TextChoices):
    ANSWERED = "answered"
    CUT = "cut"  # it ran into its length limit
    REFUSED = "refused"  # whoever was asked says that the question is wrong
    FAILED = "failed"  # no reply, or none that is understood; asked again the next time


class TeacherAnswer(TenantModel):
    """What a model behind an address said about one answer of ours: instead of it, or of each of its tokens."""

    turn = models.ForeignKey("feedback.Turn", on_delete=models.CASCADE, related_name="+")
    model = models.CharField(max_length=200)
    address = models.CharField(max_length=500)
    wants = models.CharField(max_length=8)  # text | logprobs
    state = models.CharField(max_length=8, choices=TeacherState)
    text = models.TextField(default="", blank=True)
    reasoning = models.TextField(default="", blank=True)  # told apart from the text
    likely = models.JSONField(null=True)  # of each token of our answer: [its log-probability, [[id, log-prob.], ...]]
    error = models.TextField(default="", blank=True)
    usage = models.JSONField(default=dict)  # of registry.pricing
    cost_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)  # None: unpriced, which is not free
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["turn", "model", "address", "wants"], name="teacher_asked_once"),
            models.CheckConstraint(condition=Q(state__in=TeacherState.values), name="teacher_state_known"),
        ]
        indexes = [models.Index(fields=["project", "created_at"], name="teacher_by_time")]

    def __str__(self) -> str:
        return f"{self.model} on {self.turn_id}: {self.state}"


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
