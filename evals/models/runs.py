"""One checkpoint or model measured on a benchmark, and what each answer scored; also scores of live turns."""

from django.db import models
from django.db.models import Q

from evals.models.benchmarks import Benchmark, Problem
from registry.ids import new_uuid
from registry.tenancy import TenantModel


class RunState(models.TextChoices):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class EvalState(models.TextChoices):
    """A run on a benchmark may also be cancelled by a person: what is answered is kept, and compared with nothing."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EvalRun(TenantModel):
    """One checkpoint, or one external model, measured on one benchmark.

    A run from elsewhere may have several scorers; `scorer` is the one that stands for it. `started_at` is when it began
    here, for an import when it came in; `measured_at` is when its writer says that it began.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    benchmark = models.ForeignKey(Benchmark, on_delete=models.PROTECT, related_name="runs")
    checkpoint = models.CharField(max_length=100, null=True)  # <policy>@<version>
    model = models.CharField(max_length=300, null=True)
    scorer = models.CharField(max_length=200)
    sampling = models.JSONField(default=dict)
    source = models.JSONField(default=dict)  # {"format", "writer_version", "sha256"} of an import
    source_key = models.CharField(max_length=64, null=True)  # of an import: the same when it comes again
    writer_run_id = models.CharField(max_length=300, default="", blank=True)  # "": the writer gave none
    measured_at = models.DateTimeField(null=True)  # None: measured here, or the writer does not say
    claims = models.JSONField(default=list)  # what the file states about itself: evals.importers.record.Claim
    notes = models.JSONField(default=list)  # missing, odd, assumed: evals.importers.record.Note
    settings = models.JSONField(default=dict)  # sampling, seeds, epochs, as the writer has them
    raw = models.JSONField(default=dict)  # what the file says of the run as a whole, unknown fields included
    num_repeats = models.PositiveIntegerField(default=1)  # answers asked for to each problem, of a run made here
    num_problems = models.PositiveIntegerField(null=True)  # asked, of a run made here; None: all of its benchmark
    seed = models.BigIntegerField(null=True)  # which each answer's own seed is made of; None: none was given
    seconds_per_answer = models.FloatField(null=True)  # an answer that takes longer is given up; None: no limit
    asked_by = models.CharField(max_length=200, default="", blank=True)  # "": by the gate, or it came from elsewhere
    state = models.CharField(max_length=9, choices=EvalState, default=EvalState.RUNNING)
    started_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    error = models.TextField(default="", blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "benchmark", "checkpoint"], name="run_by_checkpoint"),
            models.Index(fields=["project", "checkpoint", "-started_at"], name="run_of_checkpoint"),
            models.Index(fields=["project", "model", "-started_at"], name="run_of_model"),
            models.Index(fields=["project", "-started_at"], name="run_by_time"),
            models.Index(fields=["project"], condition=Q(state="running") & ~Q(asked_by=""), name="run_under_way"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "source_key"], condition=Q(source_key__isnull=False), name="one_import_of_a_run"
            )
        ]

    def __str__(self) -> str:
        return f"{self.checkpoint or self.model or 'unnamed model'} on {self.benchmark}"


class ScoreStatus(models.TextChoices):
    SCORED = "scored"
    UNSCORED = "unscored"  # nothing to measure, or not measurable
    ERROR = "error"  # the completion could not be had
    INFRA = "infra"  # our own sandbox or service failed: masked, never a 0


class Score(TenantModel):
    """One measurement in [0, 1], or unscored: of an answer in a run, or of a live turn."""

    run = models.ForeignKey(EvalRun, on_delete=models.CASCADE, null=True, related_name="scores")
    problem = models.ForeignKey(Problem, on_delete=models.PROTECT, null=True, related_name="scores")
    turn_ref = models.CharField(max_length=128, null=True)
    scorer = models.CharField(max_length=200)
    scorer_version = models.CharField(max_length=20, default="1")
    repeat = models.PositiveIntegerField(default=0)
    seed = models.BigIntegerField(null=True)  # the answer was sampled with it; None: none was given, or it is not said
    status = models.CharField(max_length=8, choices=ScoreStatus)
    value = models.FloatField(null=True)
    raw_score = models.JSONField(null=True)  # before it was brought to [0, 1], where that differs: "C", 7 of 10
    explanation = models.TextField(default="", blank=True)
    parts = models.JSONField(default=dict)
    output = models.TextField(default="", blank=True)
    usage = models.JSONField(default=dict)
    cost_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)  # None: unpriced
    latency_ms = models.FloatField(null=True)
    sandbox_level = models.CharField(max_length=40, default="", blank=True)
    slices = models.JSONField(default=dict)  # of this answer, beside those of its problem
    raw = models.JSONField(default=dict)  # the record as an imported file has it
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "problem", "scorer", "repeat"],
                condition=Q(run__isnull=False),
                name="one_score_per_answer",
            ),
            models.UniqueConstraint(
                fields=["project", "turn_ref", "scorer", "scorer_version"],
                condition=Q(turn_ref__isnull=False),
                name="one_score_per_turn",
            ),
            models.CheckConstraint(
                condition=Q(run__isnull=True) ^ Q(turn_ref__isnull=True), name="score_of_run_or_turn"
            ),
            models.CheckConstraint(
                condition=Q(status="scored", value__gte=0, value__lte=1)
                | (~Q(status="scored") & Q(value__isnull=True)),
                name="value_iff_scored",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scorer} {self.value if self.value is not None else self.status}"
