"""What is learned from: sealed samples, who gave them, and what they share with benchmarks."""

from django.db import models
from django.db.models import Q

from registry.ids import new_uuid
from registry.models import Policy
from registry.tenancy import TenantModel
from rl_online.models.plans import RewardSpec


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
