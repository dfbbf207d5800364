"""Problem sets, and the problems in them."""

from django.db import models
from django.db.models import Q

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
    sampling = models.JSONField(default=dict)  # of a run that is not told otherwise, e.g. {"stop": ["\\ndef"]}
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

    @property
    def is_draft(self) -> bool:
        """Still being collected: made here, and not closed."""
        return not self.digest and not self.origin


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
