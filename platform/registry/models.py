"""What every room refers to: projects and who may do what, policies and their checkpoints, prices, the audit trail,
and who is told of what happens.
"""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from registry.ids import new_uuid
from registry.tenancy import TenantModel


class Project(models.Model):
    """A tenant. Its settings are validated by `registry.project_settings.ProjectSettings`."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=120)
    settings = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.slug


class Role(models.TextChoices):
    OWNER = "owner"
    ENGINEER = "engineer"
    REVIEWER = "reviewer"
    VIEWER = "viewer"

    @property
    def rank(self) -> int:
        """Higher may do all that lower may: viewer 0, reviewer 1, engineer 2, owner 3."""
        return (Role.VIEWER, Role.REVIEWER, Role.ENGINEER, Role.OWNER).index(self)

    def may(self, needed: "Role") -> bool:
        return self.rank >= needed.rank


class Member(TenantModel):
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="one_membership_per_user"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} as {self.role}"


class Scope(models.TextChoices):
    INGEST = "ingest"
    READ = "read"
    INFER = "infer"
    TRAIN = "train"
    ADMIN = "admin"


class ApiKey(TenantModel):
    """A key is `<prefix>.<secret>`; only the SHA-256 of the secret is kept."""

    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=20, unique=True)
    digest = models.BinaryField(max_length=32)
    scopes = ArrayField(models.CharField(max_length=10, choices=Scope))
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    origins = ArrayField(models.CharField(max_length=200), default=list)  # not empty: a browser key, for these sites
    items_per_minute = models.PositiveIntegerField(null=True)  # None: no limit of its own
    window_at = models.DateTimeField(null=True)  # when the minute being counted began
    window_items = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    @property
    def is_browser(self) -> bool:
        """Lies open in a web page, so it may only send signals, from its own sites, at a limited rate."""
        return bool(self.origins)

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())


class Policy(TenantModel):
    """A network being trained, and the line of its checkpoints."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    name = models.SlugField(max_length=60)
    description = models.TextField(default="", blank=True)
    source = models.CharField(max_length=500, default="", blank=True)  # where the first checkpoint came from
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="policy_name_in_project")]

    def __str__(self) -> str:
        return self.name


class CheckpointState(models.TextChoices):
    CANDIDATE = "candidate"
    CANARY = "canary"
    SERVING = "serving"
    RETIRED = "retired"
    REJECTED = "rejected"


class Checkpoint(TenantModel):
    """Immutable weights with a name that is never used again: `<policy>@<version>`."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="checkpoints")
    version = models.PositiveIntegerField()
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="children")
    state = models.CharField(max_length=10, choices=CheckpointState, default=CheckpointState.CANDIDATE)
    tree_digest = models.CharField(max_length=64)
    folder = models.CharField(max_length=500)  # relative to the home's checkpoints folder
    num_bytes = models.PositiveBigIntegerField()
    optimizer_step = models.PositiveIntegerField(default=0)
    update_run_id = models.UUIDField(null=True, unique=True)  # one registered checkpoint per UpdateRun
    created_at = models.DateTimeField(auto_now_add=True)
    is_pinned = models.BooleanField(default=False)  # a person wants its files kept, whatever retention says
    files_deleted_at = models.DateTimeField(null=True)  # None: its folder is there
    files_deleted_reason = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["policy", "version"], name="version_never_reused"),
            models.CheckConstraint(condition=Q(state__in=CheckpointState.values), name="checkpoint_state_known"),
        ]

    def __str__(self) -> str:
        return f"{self.policy.name}@{self.version}"


class Deployment(TenantModel):
    """Which checkpoint an alias of a policy points to. `fence` grows with every move; the last move wins."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="deployments")
    alias = models.SlugField(max_length=60, default="default")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="+")
    previous = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, null=True, related_name="+")
    canary = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, null=True, related_name="+")
    canary_share = models.FloatField(default=0.0)
    fence = models.PositiveBigIntegerField(default=1)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["policy", "alias"], name="alias_in_policy"),
            models.CheckConstraint(condition=Q(canary_share__gte=0, canary_share__lte=1), name="share_is_a_share"),
        ]

    def __str__(self) -> str:
        return f"{self.policy.name}:{self.alias}"


def _is_price(name: str) -> Q:
    """From 0 on, or unknown. The upper end keeps out NaN, which PostgreSQL sorts above every number."""
    return Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gte": 0, f"{name}__lt": 10**10})


class PriceCard(TenantModel):
    """Prices of one model from a date on, in USD per million tokens. Immutable: a change is a new card.

    From the hour of its first own card on a model costs what its own cards say, before it what a price list says.
    """

    model = models.CharField(max_length=300)
    valid_from = models.DateTimeField()
    input_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)
    cache_read_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)
    cache_write_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)
    output_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)
    device_hour_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True)
    # registry.pricing.Variant, the first that covers a request holds
    variants = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    source = models.CharField(max_length=80, default="", db_default="", blank=True)  # package and version; "": own
    listed_as = models.CharField(max_length=200, default="", db_default="", blank=True)  # <provider>/<name in the list>
    url = models.CharField(max_length=500, default="", db_default="", blank=True)  # the provider's page of prices
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "model", "valid_from"], condition=Q(source=""), name="one_card_per_date"
            ),
            models.UniqueConstraint(
                fields=["project", "model", "valid_from"], condition=~Q(source=""), name="one_listed_card_per_date"
            ),
            models.CheckConstraint(
                condition=_is_price("input_usd")
                & _is_price("cache_read_usd")
                & _is_price("cache_write_usd")
                & _is_price("output_usd")
                & _is_price("device_hour_usd"),
                name="prices_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model} from {self.valid_from:%F}"

    @property
    def is_own(self) -> bool:
        return not self.source


class Budget(TenantModel):
    """What a project means to spend on one kind of thing in a day or a month (UTC), and when it wants to be told."""

    class Kind(models.TextChoices):
        TOTAL = "total"
        INFERENCE = "inference"
        TRAINING = "training"
        JUDGING = "judging"

    class Period(models.TextChoices):
        DAY = "day"
        MONTH = "month"

    kind = models.CharField(max_length=9, choices=Kind)
    period = models.CharField(max_length=5, choices=Period)
    usd = models.DecimalField(max_digits=14, decimal_places=4)
    alert_percents = ArrayField(models.PositiveSmallIntegerField(), default=list)  # of the budget, ascending
    stops = models.BooleanField(default=False)  # once spent, judges are not asked and no update starts by itself
    spent_until = models.DateTimeField(null=True)  # it is spent, and is so until then; None: it is not
    changed_by = models.CharField(max_length=200, default="", blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "kind", "period"], name="one_budget_of_a_kind"),
            models.CheckConstraint(condition=Q(usd__gt=0, usd__lt=10**10), name="budget_is_a_price"),
            models.CheckConstraint(
                condition=Q(kind__in=["total", "inference", "training", "judging"], period__in=["day", "month"]),
                name="budget_kind_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} a {self.period}"


class DeviceRollup(TenantModel):
    """How long of one hour an engine was there to answer, whether or not it was asked: summed from its reports."""

    engine = models.CharField(max_length=100)
    hour = models.DateTimeField()  # its first moment, in UTC
    held_ms = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "hour", "engine"], name="one_device_rollup"),
            models.CheckConstraint(condition=Q(held_ms__lte=3_600_000), name="an_hour_has_3600_s"),
        ]

    def __str__(self) -> str:
        return f"{self.engine} {self.held_ms / 1e3:.0f} s in {self.hour:%F %H}h"


class SavedView(TenantModel):
    """A list's filter under a name: the query string that shows it. Its owner's alone, or shared with the project."""

    page = models.CharField(max_length=60)  # name of the list's address: sessions, turns, ...
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=4000)  # without the question mark
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "page", "owner", "name"], name="view_name_of_owner"),
            models.CheckConstraint(condition=~Q(name=""), name="view_has_a_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.page})"


class AuditEvent(TenantModel):
    """Who did what to what, why, and how it was before. The database refuses changes and deletions."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200)  # a user name, `key:<prefix>`, or `strop` for the loop itself
    verb = models.CharField(max_length=60)
    object_kind = models.CharField(max_length=60)
    object_id = models.CharField(max_length=200)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.TextField(default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["project", "-at"], name="audit_by_time")]

    def __str__(self) -> str:
        return f"{self.actor} {self.verb} {self.object_kind} {self.object_id}"


class NoticeKind(models.TextChoices):
    """What a project may be told of."""

    GATE_DECIDED = "gate.decided", "A gate decided about a checkpoint"
    ALARM_RAISED = "alarm.raised", "An alarm was raised"
    ALARM_CLEARED = "alarm.cleared", "An alarm is over"
    UPDATE_FAILED = "update.failed", "An update failed"
    JOB_QUARANTINED = "job.quarantined", "A job was given up after five attempts"
    TEST = "test", "Somebody pressed the test button"


class ChannelKind(models.TextChoices):
    WEBHOOK = "webhook"
    EMAIL = "email", "E-mail"


class NotificationChannel(TenantModel):
    """Where a project's notices go. A webhook's secret is derived, never stored: `registry.webhooks.secret_of`."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=10, choices=ChannelKind)
    target = models.CharField(max_length=500)  # the webhook's URL, or one e-mail address
    events = ArrayField(models.CharField(max_length=40, choices=NoticeKind))
    is_enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=300, default="", blank=True)
    num_failures_in_row = models.PositiveIntegerField(default=0)  # deliveries given up since the last that arrived
    secret_version = models.PositiveIntegerField(default=1)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="channel_name_in_project"),
            models.CheckConstraint(condition=Q(kind__in=ChannelKind.values), name="channel_kind_known"),
        ]

    def __str__(self) -> str:
        return self.name


class Notice(TenantModel):
    """One thing that happened and is told. The same `key` of the same kind is told once."""

    id = models.UUIDField(primary_key=True, default=new_uuid, editable=False)
    kind = models.CharField(max_length=40, choices=NoticeKind)
    key = models.CharField(max_length=200, null=True)
    payload = models.JSONField()
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "kind", "key"], name="notice_told_once")]
        indexes = [models.Index(fields=["project", "-at"], name="notice_by_time")]

    def __str__(self) -> str:
        return f"{self.kind} {self.at:%F %T}"


class DeliveryState(models.TextChoices):
    WAITING = "waiting"  # for its first attempt, or the next
    SENT = "sent"  # the receiver answered 2xx, or the mail server took it
    GIVEN_UP = "given_up"


class NoticeDelivery(TenantModel):
    """One notice on its way to one channel, with every attempt: {at, status, duration_ms, excerpt}."""

    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(NotificationChannel, on_delete=models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=10, choices=DeliveryState, default=DeliveryState.WAITING)
    attempts = models.JSONField(default=list)
    next_at = models.DateTimeField(null=True)  # of the next attempt
    sent_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["notice", "channel"], name="one_delivery_per_channel"),
            models.CheckConstraint(condition=Q(state__in=DeliveryState.values), name="delivery_state_known"),
            models.CheckConstraint(condition=~Q(state="sent") | Q(sent_at__isnull=False), name="sent_has_its_time"),
        ]
        indexes = [models.Index(fields=["channel", "-created_at"], name="delivery_by_time")]

    def __str__(self) -> str:
        return f"{self.notice.kind} to {self.channel} ({self.state})"


class IdempotentCall(TenantModel):
    """A call of the management API that was answered once; sent again with its key it gets the same answer."""

    key = models.CharField(max_length=255)
    request_hash = models.CharField(max_length=64)  # of method, address and body
    status = models.PositiveSmallIntegerField(null=True)  # None only inside the transaction that answers it
    body = models.TextField(default="", blank=True)  # of the answer, without what is told once
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "key"], name="idempotency_key_in_project")]
        indexes = [models.Index(fields=["project", "created_at"], name="idempotent_by_time")]

    def __str__(self) -> str:
        return self.key
