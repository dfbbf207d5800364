"""What stages take beside turns: corpora and teachers' answers."""

from django.db import models
from django.db.models import Q

from registry.ids import new_uuid
from registry.models import Checkpoint
from registry.tenancy import TenantModel


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
