"""Judges as they were when they judged, what they have to do, and panels of them."""

from django.db import models
from django.db.models import Q

from registry.tenancy import TenantModel


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
