"""What users and the product told us: sessions, turns, signals, and the labels and flags made from them.

Turn holds the small columns that lists and labels need. The large ones (messages, tokens) live in
`feedback_turnpayload`, partitioned by month of `at`, referenced by nothing.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from registry.tenancy import TenantModel, project_of_new_row


class LedgerItem(TenantModel):
    """Every item ever accepted, by its sender's id: same id and body is a duplicate, other body a conflict."""

    item_id = models.CharField(max_length=128)
    kind = models.CharField(max_length=6)  # turn | signal
    body_hash = models.BinaryField(max_length=32)
    outcome = models.CharField(max_length=12, default="accepted")  # later: expired, redacted, deleted
    received_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "item_id"], name="item_id_in_project")]

    def __str__(self) -> str:
        return f"{self.kind} {self.item_id}"


class OutcomeCount(TenantModel):
    """How many received items ended in which outcome, by hour; the sum over outcomes is what was received.

    Requests refused whole are counted apart, as outcome `request:<status>`.
    """

    hour = models.DateTimeField()
    outcome = models.CharField(max_length=20)
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "hour", "outcome"], name="one_count_per_hour")]

    def __str__(self) -> str:
        return f"{self.outcome} {self.count}"


class LastRefusal(TenantModel):
    """The newest item or request of one key that came to one bad end, and how often that end came; a row for each."""

    key = models.CharField(max_length=40)  # key:<prefix>, or internal
    outcome = models.CharField(max_length=20)  # of an item, or `request:<status>` for a request refused whole
    field = models.CharField(max_length=200, default="", blank=True)  # which field was wrong
    message = models.TextField(default="", blank=True)
    item_id = models.CharField(max_length=128, null=True)
    count = models.PositiveBigIntegerField(default=0)  # ever
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "key", "outcome"], name="one_refusal_per_outcome")]

    def __str__(self) -> str:
        return f"{self.key} {self.outcome}"


class AgentSession(TenantModel):
    """One conversation of one end user with one agent."""

    session_id = models.CharField(max_length=128)
    user = models.CharField(max_length=200, null=True)
    surface = models.CharField(max_length=100, null=True)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    num_turns = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "session_id"], name="session_id_in_project")]
        indexes = [models.Index(fields=["project", "-last_at"], name="session_by_time")]

    def __str__(self) -> str:
        return self.session_id


class Outcome(models.TextChoices):
    ACCEPT = "accept"
    REJECT = "reject"
    SILENCE = "silence"
    UNKNOWN = "unknown"


class Turn(TenantModel):
    """One prompt -> completion exchange; `label` is its current Label, None until it settles."""

    turn_id = models.CharField(max_length=128)
    session = models.ForeignKey(AgentSession, on_delete=models.CASCADE, related_name="turns")
    index = models.IntegerField(default=0)
    at = models.DateTimeField()
    received_at = models.DateTimeField(default=timezone.now)
    policy = models.CharField(max_length=60, null=True)  # with version: our own weights
    version = models.IntegerField(null=True)
    model = models.CharField(max_length=200, null=True)  # an external model instead; neither: origin unknown
    group = models.CharField(max_length=128, null=True)
    problem = models.CharField(max_length=300, null=True)  # <benchmark>@<version>/<id>
    surface = models.CharField(max_length=100, null=True)
    language = models.CharField(max_length=60, null=True)
    user = models.CharField(max_length=200, null=True)
    source = models.CharField(max_length=12, default="production")
    sampling = models.JSONField(null=True)
    finish_reason = models.CharField(max_length=40, null=True)
    error = models.TextField(null=True)
    input_tokens = models.IntegerField(null=True)
    cache_read_tokens = models.IntegerField(null=True)
    cache_write_tokens = models.IntegerField(null=True)
    output_tokens = models.IntegerField(null=True)
    reasoning_tokens = models.IntegerField(null=True)
    ttft_ms = models.FloatField(null=True)
    latency_ms = models.FloatField(null=True)
    num_completion_chars = models.IntegerField(default=0)
    has_logprobs = models.BooleanField(default=False)  # token ids, logprobs and versions are all there
    is_shown = models.BooleanField(default=True)
    has_bad_call = models.BooleanField(null=True)  # these three as in `feedback.conduct`; None: not known
    asks_back = models.BooleanField(null=True)
    is_without_edit = models.BooleanField(null=True)
    label = models.ForeignKey("Label", on_delete=models.SET_NULL, null=True, related_name="+")
    outcome = models.CharField(max_length=7, choices=Outcome, null=True)  # of the current label
    settled_at = models.DateTimeField(null=True)
    settle_due = models.DateTimeField(null=True)  # when silence settles it
    is_excluded = models.BooleanField(default=False)  # a reviewer took it out of training
    reward_override = models.FloatField(null=True)  # a reviewer's word beats the recipe
    # Grows whenever the override is set, changed or taken back: a batch knows by it which word it was sealed under.
    reward_revision = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "turn_id"], name="turn_id_in_project"),
            models.CheckConstraint(
                condition=Q(outcome__isnull=True) | Q(outcome__in=Outcome.values), name="outcome_known"
            ),
        ]
        indexes = [
            models.Index(fields=["project", "-at"], name="turn_by_time"),
            models.Index(fields=["project", "policy", "version", "settled_at"], name="turn_by_version"),
            models.Index(fields=["project", "session", "index"], name="turn_by_session"),
            models.Index(fields=["settle_due"], condition=Q(settled_at__isnull=True), name="turn_unsettled"),
            models.Index(
                fields=["project", "policy", "-settled_at", "-turn_id"],
                condition=Q(settled_at__isnull=False, label__isnull=False),
                name="turn_by_settling",
            ),
        ]

    def __str__(self) -> str:
        return self.turn_id

    @property
    def checkpoint(self) -> str | None:
        return None if self.version is None else f"{self.policy}@{self.version}"


class TurnPayload(models.Model):
    """The large part of a turn, one row per turn in a monthly partition. Written by COPY, never by save()."""

    pk = models.CompositePrimaryKey("project_id", "turn_id", "at")
    project_id = models.UUIDField()
    turn_id = models.CharField(max_length=128)
    at = models.DateTimeField()
    messages = models.JSONField(null=True)
    prompt = models.TextField(null=True)
    completion = models.TextField()
    tool_calls = models.JSONField(default=list)
    prompt_token_ids = ArrayField(models.IntegerField(), null=True)
    completion_token_ids = ArrayField(models.IntegerField(), null=True)
    logprobs = ArrayField(models.FloatField(), null=True)
    weight_versions = models.JSONField(null=True)  # spans [first, end exclusive, version]
    routed_experts = models.JSONField(null=True)
    metadata = models.JSONField(default=dict)

    class Meta:
        managed = False  # partitioned; made by the migration's SQL
        db_table = "feedback_turnpayload"

    def __str__(self) -> str:
        return self.turn_id


class UserSignal(TenantModel):
    """An event from the product about a turn or a session; `turn` stays None while the turn is not here."""

    signal_id = models.CharField(max_length=128)
    turn_ref = models.CharField(max_length=128, null=True)
    session_ref = models.CharField(max_length=128, null=True)
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, null=True, related_name="signals")
    kind = models.CharField(max_length=100)
    value = models.FloatField(null=True)
    text = models.TextField(null=True)
    at = models.DateTimeField()
    received_at = models.DateTimeField(default=timezone.now)
    user = models.CharField(max_length=200, null=True)
    supersedes = models.CharField(max_length=128, null=True)
    metadata = models.JSONField(default=dict)
    expired_at = models.DateTimeField(null=True)  # an orphan whose turn never came

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "signal_id"], name="signal_id_in_project"),
            models.CheckConstraint(
                condition=Q(turn_ref__isnull=True) ^ Q(session_ref__isnull=True), name="signal_names_turn_or_session"
            ),
        ]
        indexes = [
            models.Index(fields=["project", "-at"], name="signal_by_time"),
            models.Index(
                fields=["project", "turn_ref"],
                condition=Q(turn__isnull=True, turn_ref__isnull=False, expired_at__isnull=True),
                name="signal_orphan",
            ),
            models.Index(
                fields=["project", "received_at", "id"],
                condition=Q(turn__isnull=True, turn_ref__isnull=False, expired_at__isnull=True),
                name="signal_waiting",
            ),
            models.Index(
                fields=["project", "session_ref", "at"],
                condition=Q(session_ref__isnull=False),
                name="signal_by_session",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.signal_id}"

    @property
    def is_orphan(self) -> bool:
        return self.turn_ref is not None and self.turn_id is None and self.expired_at is None


class LabelRecipe(TenantModel):
    """A version of how signals become labels. Immutable."""

    version = models.PositiveIntegerField()
    body = models.JSONField()
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "version"], name="recipe_version_in_project")]

    def __str__(self) -> str:
        return f"label recipe {self.version}"


class RecipeActivation(TenantModel):
    """From `at` on labels are made by this recipe, until a later row says otherwise."""

    recipe = models.ForeignKey(LabelRecipe, on_delete=models.PROTECT, related_name="activations")
    at = models.DateTimeField(default=timezone.now)
    actor = models.CharField(max_length=200)

    def __str__(self) -> str:
        return f"{self.recipe} from {self.at:%F %T}"


class Label(TenantModel):
    """What the signals of one turn meant when it was written; never changed, a later one replaces it."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="labels")
    recipe_version = models.PositiveIntegerField()
    outcome = models.CharField(max_length=7, choices=Outcome)
    value = models.FloatField()
    reason = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["turn", "-id"], name="label_by_turn")]

    def __str__(self) -> str:
        return f"{self.outcome} ({self.reason})"


class FlagState(models.TextChoices):
    OPEN = "open"
    RESOLVED = "resolved"


class FlagResolution(models.TextChoices):
    FINE = "fine"  # looked at, nothing to do
    EXCLUDED = "excluded"  # the turn is taken out of training
    OVERRIDDEN = "overridden"  # the reviewer's reward is used instead


MANUAL_RULES = ("by_hand", "sample")  # rules that people are: what they raise may be raised again after it was settled


class Flag(TenantModel):
    """A turn that a triage rule, or a person, wants somebody to look at. Settled once, by its first needed answers."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="flags")
    rule = models.CharField(max_length=60)
    reason = models.TextField()
    state = models.CharField(max_length=8, choices=FlagState, default=FlagState.OPEN)
    resolution = models.CharField(max_length=10, choices=FlagResolution, null=True)
    reward_override = models.FloatField(null=True)
    note = models.TextField(default="", blank=True)
    reviewer = models.CharField(max_length=200, null=True)  # those whose answers settled it
    raised_by = models.CharField(max_length=200, null=True)  # the person; None: a rule of triage
    created_at = models.DateTimeField(auto_now_add=True)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["turn", "rule"], condition=~Q(rule__in=MANUAL_RULES), name="one_flag_per_rule"
            ),
            models.UniqueConstraint(fields=["turn", "rule"], condition=Q(state="open"), name="one_open_flag_per_rule"),
        ]
        indexes = [
            models.Index(F("project"), F("created_at").desc(), condition=Q(state="open"), name="flag_open"),
            models.Index(fields=["project", "-resolved_at"], condition=Q(state="resolved"), name="flag_resolved"),
            models.Index(fields=["project", "rule", "-created_at"], name="flag_by_rule"),
            models.Index(fields=["project", "-created_at"], name="flag_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}"


class ReviewResponse(TenantModel):
    """What one person said about one flag. Nobody's word replaces another's; one taken back stays, marked."""

    flag = models.ForeignKey(Flag, on_delete=models.CASCADE, related_name="responses")
    submission = models.UUIDField()  # the act it was part of: one answer settles every open flag of its turn
    reviewer = models.CharField(max_length=200)
    resolution = models.CharField(max_length=10, choices=FlagResolution)
    reward = models.FloatField(null=True)  # in [-1, 1], exactly with `overridden`
    gold = models.CharField(max_length=7, choices=Outcome, null=True)  # accept or reject: was the answer good
    problem = models.CharField(max_length=300, null=True)  # <benchmark>@<version>/<id> made from the turn
    note = models.TextField(default="", blank=True)
    is_late = models.BooleanField(default=False)  # came when the flag was settled: kept beside, without effect
    at = models.DateTimeField(default=timezone.now)
    withdrawn_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["flag", "reviewer"], condition=Q(withdrawn_at__isnull=True), name="one_response_per_reviewer"
            ),
            models.CheckConstraint(
                condition=Q(resolution="overridden", reward__gte=-1, reward__lte=1)
                | (~Q(resolution="overridden") & Q(reward__isnull=True)),
                name="reward_iff_overridden",
            ),
            models.CheckConstraint(
                condition=Q(gold__isnull=True) | Q(gold__in=["accept", "reject"]), name="gold_is_a_verdict"
            ),
        ]
        indexes = [models.Index(fields=["project", "reviewer", "-at"], name="response_by_reviewer")]

    def __str__(self) -> str:
        return f"{self.reviewer}: {self.resolution}"


class ReviewReservation(TenantModel):
    """A turn that somebody is looking at; nobody else is given it until the lease, renewed by a heartbeat, is over."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="reservations")
    slot = models.PositiveSmallIntegerField(default=0)  # as many as answers are still needed
    reviewer = models.CharField(max_length=200)
    taken_at = models.DateTimeField(default=timezone.now)
    lease_until = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["turn", "slot"], name="one_reviewer_per_slot"),
            models.UniqueConstraint(fields=["turn", "reviewer"], name="one_reservation_per_reviewer"),
        ]
        indexes = [models.Index(fields=["project", "lease_until"], name="reservation_by_lease")]

    def __str__(self) -> str:
        return f"{self.reviewer} until {self.lease_until:%F %T}"


class ReviewDraft(TenantModel):
    """What a reviewer has so far about a turn: a form that is not sent yet, or that they skipped it."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="drafts")
    reviewer = models.CharField(max_length=200)
    body = models.JSONField(default=dict)  # field of the form -> its text
    skipped_at = models.DateTimeField(null=True)
    saved_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["turn", "reviewer"], name="one_draft_per_reviewer")]

    def __str__(self) -> str:
        return f"draft of {self.reviewer}"


class CheckpointColumns(TenantModel):
    """Which weights or model, of which source, an hour's numbers are about; all None: origin unknown."""

    hour = models.DateTimeField()  # its first moment, in UTC
    policy = models.CharField(max_length=60, null=True)
    version = models.IntegerField(null=True)
    model = models.CharField(max_length=200, null=True)
    source = models.CharField(max_length=12, null=True)  # None: of signals without a turn

    class Meta:
        abstract = True


class TurnRollup(CheckpointColumns):
    """The turns made in one hour, counted from their rows by `services.rollups`; exact once the hour is not dirty."""

    turns = models.PositiveIntegerField()
    errors = models.PositiveIntegerField()  # turns that ended in an error
    shown = models.PositiveIntegerField()
    settled = models.PositiveIntegerField()  # of those shown; the sum of the four outcomes
    accepted = models.PositiveIntegerField()
    rejected = models.PositiveIntegerField()
    silent = models.PositiveIntegerField()
    unknown = models.PositiveIntegerField()
    with_usage = models.PositiveIntegerField()  # turns whose input and output are known; the sums are over these
    input_tokens = models.PositiveBigIntegerField()
    cache_read_tokens = models.PositiveBigIntegerField()
    cache_write_tokens = models.PositiveBigIntegerField()
    output_tokens = models.PositiveBigIntegerField()
    reasoning_tokens = models.PositiveBigIntegerField()
    with_latency = models.PositiveIntegerField()  # turns whose latency is known
    latency_us = models.PositiveBigIntegerField()  # the sum over them; whole microseconds, so that sums are exact
    without_logprobs = models.PositiveIntegerField(db_default=0)  # of our own weights: no ratio loss can use them
    from_future = models.PositiveIntegerField(db_default=0)  # dated more than 5 s after they arrived
    with_conduct = models.PositiveIntegerField(db_default=0)  # turns of which is known what they do
    bad_calls = models.PositiveIntegerField(db_default=0)  # of these, with a tool call that cannot be carried out
    asked_back = models.PositiveIntegerField(db_default=0)
    without_edit = models.PositiveIntegerField(db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "hour", "policy", "version", "model", "source"],
                name="one_turn_rollup",
                nulls_distinct=False,
            )
        ]

    def __str__(self) -> str:
        return f"{self.turns} turns in {self.hour:%F %H}h"


class UserRollup(CheckpointColumns):
    """One user's turns of one hour, without which no interval over several hours could know its clusters."""

    user = models.CharField(max_length=200, null=True)  # None: of nobody known
    turns = models.PositiveIntegerField()
    settled = models.PositiveIntegerField()  # of those shown
    accepted = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "hour", "policy", "version", "model", "source", "user"],
                name="one_user_rollup",
                nulls_distinct=False,
            )
        ]
        indexes = [
            # An accept share over many hours sums each user's first: read in this order, nothing is sorted or hashed.
            models.Index(
                fields=["project", "policy", "version", "source", "user", "hour"],
                include=["settled", "accepted"],
                condition=Q(settled__gt=0),
                name="user_rollup_by_version",
            )
        ]

    def __str__(self) -> str:
        return f"{self.turns} turns in {self.hour:%F %H}h"


class SignalRollup(CheckpointColumns):
    """The signals sent about one hour by kind, under the checkpoint of their turn."""

    kind = models.CharField(max_length=100)
    signals = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "hour", "policy", "version", "model", "source", "kind"],
                name="one_signal_rollup",
                nulls_distinct=False,
            )
        ]

    def __str__(self) -> str:
        return f"{self.signals} {self.kind} in {self.hour:%F %H}h"


class LatencyRollup(CheckpointColumns):
    """A histogram of one hour's latencies; `feedback.rollups` says which milliseconds a bucket holds."""

    measure = models.CharField(max_length=7)  # latency | ttft
    bucket = models.SmallIntegerField()
    turns = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "hour", "policy", "version", "model", "source", "measure", "bucket"],
                name="one_latency_rollup",
                nulls_distinct=False,
            )
        ]

    def __str__(self) -> str:
        return f"{self.turns} turns in bucket {self.bucket}"


class BusyRollup(TenantModel):
    """How long, of the answers begun in one hour, at least one of our own weights was at work: what a device was held.

    An answer belongs to the hour it began in; time in which several overlap counts once.
    """

    hour = models.DateTimeField()  # its first moment, in UTC
    busy_us = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "hour"], name="one_busy_rollup")]

    def __str__(self) -> str:
        return f"{self.busy_us / 1e6:.1f} s in {self.hour:%F %H}h"


class DirtyHour(TenantModel):
    """An hour whose turns or signals have changed since it was counted, marked by triggers in the same transaction.

    A log, not a set: writers of one hour never wait for each other. Counting removes the marks it has seen.
    """

    project = models.ForeignKey(
        "registry.Project",
        on_delete=models.CASCADE,
        default=project_of_new_row,
        related_name="+",
        db_constraint=False,  # deleting a project's turns still marks
    )
    hour = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["project", "-hour"], name="dirty_by_hour")]

    def __str__(self) -> str:
        return f"{self.hour:%F %H}h"
