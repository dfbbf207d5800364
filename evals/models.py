"""Problem sets, runs on them, and what was measured: scores, judge calls, comparisons."""

from django.db import models
from django.db.models import Q

from registry.ids import new_uuid
from registry.tenancy import TenantModel


class Benchmark(TenantModel):
    """A named, versioned problem set; immutable once it has problems and a digest.

    One that came in with a run from elsewhere says so in `origin`. It has no digest and grows with the runs on it, each
    of which may hold a part of it. Its `version` counts here; the writer's own is `origin_version`.
    """

    name = models.CharField(max_length=200)
    version = models.PositiveIntegerField(default=1)
    description = models.TextField(default="", blank=True)
    is_held_out = models.BooleanField(default=True)  # live turns may not link to it, and nothing trains on it
    digest = models.CharField(max_length=64, default="", blank=True)
    origin = models.CharField(max_length=40, default="", blank=True)  # a format, e.g. "lm_eval"; "": made here
    origin_name = models.CharField(max_length=300, default="", blank=True)  # as the writer has it, e.g. "gsm8k"
    origin_version = models.CharField(max_length=100, default="", blank=True)  # as the writer has it, e.g. "3.0"
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name", "version"], name="benchmark_version"),
            models.UniqueConstraint(
                fields=["project", "origin", "origin_name", "origin_version"],
                condition=~Q(origin=""),
                name="imported_benchmark",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class Problem(TenantModel):
    """One item. One of `messages` and `prompt`, or neither where a run from elsewhere did not bring the text.

    `tests` is what the scorer runs.
    """

    benchmark = models.ForeignKey(Benchmark, on_delete=models.CASCADE, related_name="problems")
    problem_id = models.CharField(max_length=128)
    messages = models.JSONField(null=True)
    prompt = models.TextField(null=True)
    tests = models.JSONField(null=True)
    reference = models.TextField(null=True)
    slices = models.JSONField(default=dict)  # e.g. {"family": "sum", "half": "unseen"}

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["benchmark", "problem_id"], name="problem_in_benchmark"),
            models.CheckConstraint(
                condition=Q(messages__isnull=True) | Q(prompt__isnull=True), name="messages_or_prompt"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.benchmark}/{self.problem_id}"


class RunState(models.TextChoices):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


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
    state = models.CharField(max_length=8, choices=RunState, default=RunState.RUNNING)
    started_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    error = models.TextField(default="", blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "benchmark", "checkpoint"], name="run_by_checkpoint"),
            models.Index(fields=["project", "checkpoint", "-started_at"], name="run_of_checkpoint"),
            models.Index(fields=["project", "model", "-started_at"], name="run_of_model"),
            models.Index(fields=["project", "-started_at"], name="run_by_time"),
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


class VerdictKind(models.TextChoices):
    LEFT = "left"
    RIGHT = "right"
    TIE = "tie"
    BOTH_BAD = "both_bad"
    INVALID = "invalid"
    ERROR = "error"


class JudgeVersion(TenantModel):
    """A judge as it was when it judged. Changing any part makes a new row; the database refuses to change this one."""

    name = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    protocol = models.CharField(max_length=10, default="pairwise")  # evals.judging.judge.Protocol
    endpoint = models.CharField(max_length=300, default="", blank=True)  # see evals.services.completers.completer_of
    template = models.TextField(default="", blank=True)  # what it is told first; "": the template of its digest
    rubric = models.TextField(default="", blank=True)  # "": that of the template
    scale_low = models.FloatField(default=1.0)
    scale_high = models.FloatField(default=5.0)
    prompt_digest = models.CharField(max_length=64)  # of template, repair, rubric and scale
    parser_version = models.CharField(max_length=20)
    sampling = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=[
                    "project", "name", "model", "endpoint", "protocol", "prompt_digest", "parser_version", "sampling",
                ],
                name="judge_version",
            )
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.name} ({self.model})"

    @property
    def is_pairwise(self) -> bool:
        return self.protocol == "pairwise"


class Subject(models.TextChoices):
    """What a judge of single answers is shown of live traffic."""

    TURN = "turn"
    SESSION = "session"


class JudgeDuty(TenantModel):
    """What a judge version has to do and may spend: the part of a judge that people change."""

    judge = models.OneToOneField(JudgeVersion, on_delete=models.CASCADE, related_name="duty")
    live = models.CharField(max_length=7, choices=Subject, default="", blank=True)  # "": judges no live traffic
    share = models.FloatField(default=1.0)  # of the turns or sessions, chosen by their id
    idle_s = models.PositiveIntegerField(default=300)  # a session this long without a turn has ended
    may_judge_itself = models.BooleanField(default=False)  # shown only: such a judge never has a vote
    daily_usd = models.DecimalField(max_digits=12, decimal_places=4, null=True)  # None: no limit; days are UTC
    daily_calls = models.PositiveIntegerField(null=True)
    changed_by = models.CharField(max_length=200, default="", blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(share__gt=0, share__lte=1), name="share_of_live_traffic"),
        ]

    def __str__(self) -> str:
        return f"duty of {self.judge}"


class Panel(TenantModel):
    """Several judges of single answers that speak as one; made once, never changed."""

    name = models.CharField(max_length=100)
    judges = models.JSONField(default=list)  # keys of JudgeVersion
    quorum = models.PositiveIntegerField(default=2)  # fewer marks make none
    max_spread = models.FloatField(default=0.5)  # marks further apart make none
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="panel_name_in_project")]

    def __str__(self) -> str:
        return self.name


class RatingState(models.TextChoices):
    WAITING = "waiting"
    SCORED = "scored"
    INVALID = "invalid"  # a reply without a mark that could be read
    ERROR = "error"  # the judge could not be asked; it can be asked again
    SKIPPED = "skipped"  # not for this judge, see the reason


class LiveRating(TenantModel):
    """What one judge makes of one settled turn, or of one session as it stood when it ended.

    A session that goes on after it was judged is judged again; the older rating is superseded, and kept.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    judge = models.ForeignKey(JudgeVersion, on_delete=models.PROTECT, related_name="ratings")
    subject = models.CharField(max_length=7, choices=Subject)
    subject_ref = models.CharField(max_length=128)  # the sender's id of the turn or session
    revision = models.CharField(max_length=64, default="", blank=True)  # of a session: its turns when it ended
    rated = models.CharField(max_length=200, default="", blank=True)  # whose answer: <policy>@<version> or a model
    num_chars = models.PositiveIntegerField(default=0)  # of the answer
    state = models.CharField(max_length=8, choices=RatingState, default=RatingState.WAITING)
    value = models.FloatField(null=True)  # in [0, 1]: 0 is the floor of the scale
    mark = models.FloatField(null=True)  # on the judge's scale
    reason = models.TextField(default="", blank=True)  # why there is no value
    created_at = models.DateTimeField(auto_now_add=True)
    judged_at = models.DateTimeField(null=True)
    superseded_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "judge", "subject", "subject_ref", "revision"], name="one_rating_per_revision"
            ),
            models.UniqueConstraint(
                fields=["project", "judge", "subject", "subject_ref"],
                condition=Q(superseded_at__isnull=True),
                name="one_current_rating",
            ),
            models.CheckConstraint(
                condition=Q(state="scored", value__gte=0, value__lte=1) | (~Q(state="scored") & Q(value__isnull=True)),
                name="rating_value_iff_scored",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "subject", "subject_ref"], name="rating_of_subject"),
            models.Index(fields=["project", "judge", "-created_at"], name="rating_by_judge"),
        ]

    def __str__(self) -> str:
        return f"{self.judge} on {self.subject} {self.subject_ref}: {self.state}"


class GoldLabel(TenantModel):
    """What a person says about a turn or session that judges mark: what judges are held against."""

    subject = models.CharField(max_length=7, choices=Subject)
    subject_ref = models.CharField(max_length=128)
    value = models.FloatField()  # in [0, 1]
    by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "subject", "subject_ref", "by"], name="one_label_per_person"),
            models.CheckConstraint(condition=Q(value__gte=0, value__lte=1), name="gold_is_a_share"),
        ]

    def __str__(self) -> str:
        return f"{self.by} on {self.subject} {self.subject_ref}: {self.value:g}"


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


class ComparisonSet(TenantModel):
    """The comparisons of one imported file: votes of people or of other judges, kept apart from those made here."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    benchmark = models.ForeignKey(Benchmark, on_delete=models.PROTECT, related_name="comparison_sets")
    source = models.JSONField(default=dict)  # {"format", "writer_version", "sha256"}
    source_key = models.CharField(max_length=64)
    writer_run_id = models.CharField(max_length=300, default="", blank=True)
    claims = models.JSONField(default=list)
    notes = models.JSONField(default=list)
    state = models.CharField(max_length=8, choices=RunState, default=RunState.RUNNING)
    started_at = models.DateTimeField(auto_now_add=True)  # when it came in
    finished_at = models.DateTimeField(null=True)
    error = models.TextField(default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["project", "-started_at"], name="comparison_set_by_time")]
        constraints = [models.UniqueConstraint(fields=["project", "source_key"], name="one_import_of_comparisons")]

    def __str__(self) -> str:
        return f"comparisons on {self.benchmark}"


class Comparison(TenantModel):
    """Two completions to one prompt with a verdict; by a judge (both orders must agree), a person or the tests.

    An imported one names its `set` and, instead of a JudgeVersion, the `rater` as the file has it.
    """

    set = models.ForeignKey(ComparisonSet, on_delete=models.CASCADE, null=True, related_name="comparisons")
    problem = models.ForeignKey(Problem, on_delete=models.PROTECT, null=True, related_name="comparisons")
    left = models.CharField(max_length=200)  # <policy>@<version> or a model's name
    right = models.CharField(max_length=200)
    left_text = models.TextField(default="", blank=True)
    right_text = models.TextField(default="", blank=True)
    by = models.CharField(max_length=10)  # judge | person | tests
    judge = models.ForeignKey(JudgeVersion, on_delete=models.PROTECT, null=True, related_name="comparisons")
    verdict = models.CharField(max_length=8, choices=VerdictKind)
    rater = models.CharField(max_length=200, default="", blank=True)  # the judge's or the person's name in the file
    repeat = models.PositiveIntegerField(default=0)
    preference = models.FloatField(null=True)  # a soft verdict, P(right wins); None: the verdict is all there is
    slices = models.JSONField(default=dict)
    cost_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)  # of an imported one, as reported
    judged_at = models.DateTimeField(null=True)  # of an imported one, as reported
    raw = models.JSONField(default=dict)  # the record as an imported file has it
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "left", "right"], name="comparison_by_pair"),
            models.Index(fields=["project", "-created_at"], name="comparison_by_time"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["problem", "left", "right", "judge"], condition=Q(by="judge"), name="one_verdict_per_judge"
            ),
            models.UniqueConstraint(
                fields=["set", "problem", "left", "right", "rater", "repeat"],
                condition=Q(set__isnull=False),
                name="one_verdict_per_rater",
            ),
            models.CheckConstraint(
                condition=Q(preference__isnull=True) | Q(preference__gte=0, preference__lte=1),
                name="preference_is_a_share",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.left} vs {self.right}: {self.verdict}"


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
