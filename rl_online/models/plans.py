"""When and how a policy learns, and what counts as good."""

from django.db import models

from registry.models import Policy
from registry.tenancy import TenantModel


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
