"""Two answers to one prompt and who won, by judges, people or tests; made here or brought in."""

from django.db import models
from django.db.models import Q

from evals.models.benchmarks import Benchmark, Problem
from evals.models.judges import JudgeVersion
from evals.models.runs import RunState
from registry.ids import new_uuid
from registry.tenancy import TenantModel


class VerdictKind(models.TextChoices):
    LEFT = "left"
    RIGHT = "right"
    TIE = "tie"
    BOTH_BAD = "both_bad"
    INVALID = "invalid"
    ERROR = "error"


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


class ImportedStandings(TenantModel):
    """What imported comparisons come to, as a worker computed it: who beats whom, and how strong each is.

    Of one judge over all files on a benchmark, where a verdict that two files hold counts once; of people or of tests
    in one file, since votes without a name cannot be told from copies of them.
    """

    benchmark = models.ForeignKey(Benchmark, on_delete=models.CASCADE, related_name="imported_standings")
    set = models.ForeignKey(ComparisonSet, on_delete=models.CASCADE, null=True, related_name="standings")
    by = models.CharField(max_length=10)  # judge | person | tests
    rater = models.CharField(max_length=200, default="", blank=True)  # the judge's name in its files
    num_comparisons = models.PositiveIntegerField()  # those, and the newest of them, tell whether it is still right
    newest = models.BigIntegerField()
    result = models.JSONField(default=dict)  # evals.imported_standings.Measured
    computed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["benchmark", "rater"], condition=Q(set__isnull=True), name="one_standings_per_judge"
            ),
            models.UniqueConstraint(
                fields=["set", "by"], condition=Q(set__isnull=False), name="one_standings_per_file"
            ),
            models.CheckConstraint(condition=Q(by="judge") ^ Q(set__isnull=False), name="standings_of_judge_or_file"),
        ]

    def __str__(self) -> str:
        return f"{self.rater or 'no name' if self.by == 'judge' else self.by} on {self.benchmark}"


class RaterAgreement(TenantModel):
    """How far two raters agree on the imported comparisons of one benchmark: each judge, and people as one."""

    benchmark = models.ForeignKey(Benchmark, on_delete=models.CASCADE, related_name="rater_agreements")
    first = models.CharField(max_length=210)  # "person", or "judge:<name>"
    second = models.CharField(max_length=210)  # equal to `first` only for people: any two of them
    result = models.JSONField(default=dict)  # evals.rater_agreement.Agreed

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["benchmark", "first", "second"], name="one_agreement_of_two_raters")
        ]

    def __str__(self) -> str:
        return f"{self.first} and {self.second} on {self.benchmark}"
