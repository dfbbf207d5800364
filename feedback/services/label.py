"""Keep every turn's label up to date with its signals: after each arrival, and when silence settles it.

A label is written only when it says something new, so doing it again changes nothing. The rules are in feedback.labels.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from feedback.events import turns_settled
from feedback.labels import Heard, Verdict, label_turn
from feedback.models import Label, LedgerItem, Turn, UserSignal
from feedback.services import outcomes, staging
from feedback.services.recipes import current_recipe
from feedback.services.record import LABEL_JOB
from feedback.services.triage import triage_turns
from jobs import crash
from jobs.services import ClaimedJob, enqueue
from registry.services import all_projects, project_settings
from registry.tenancy import tenant

SETTLE_JOB = "feedback.settle"
EXPIRE_JOB = "feedback.expire"
TURNS_AT_ONCE = 2000


def handle_label(job: ClaimedJob) -> None:
    """Job `feedback.label` {"turns": [sender's ids]}: these turns or their signals arrived."""
    with job.effect(), tenant(_project(job)):
        label_turns(_project(job), job.payload["turns"], now=timezone.now())
        crash.point("task.feedback.label.mid")


def handle_settle(job: ClaimedJob) -> None:
    """Job `feedback.settle`: the decision window of some turns has closed."""
    with job.effect(), tenant(_project(job)):
        settle_due(_project(job), now=timezone.now())


def handle_expire(job: ClaimedJob) -> None:
    """Job `feedback.expire`: some signals have waited too long for their turn."""
    with job.effect(), tenant(_project(job)):
        expire_orphans(_project(job), now=timezone.now())


def ask_for_settling() -> None:
    """A settling job for every project that has a turn whose window has closed."""
    for project in all_projects():
        with tenant(project.id):
            if _due(timezone.now()).exists():
                enqueue(SETTLE_JOB, project_id=project.id, key=str(project.id))


def ask_for_expiry() -> None:
    """An expiry job for every project that has a signal older than its horizon without its turn."""
    for project in all_projects():
        with tenant(project.id):
            if _old_orphans(project.id, timezone.now()).exists():
                enqueue(EXPIRE_JOB, project_id=project.id, key=str(project.id))


def settle_due(project_id: UUID, *, now: datetime) -> int:
    """Label the turns whose window has closed, at most 2000 at a time; asks for another job when more are left."""
    due = list(_due(now).order_by("settle_due", "id").values_list("turn_id", flat=True)[:TURNS_AT_ONCE])
    label_turns(project_id, due, now=now)
    if len(due) == TURNS_AT_ONCE:
        enqueue(SETTLE_JOB, project_id=project_id, key=str(project_id))
    return len(due)


def label_turns(project_id: UUID, turn_refs: Sequence[str], *, now: datetime) -> list[int]:
    """Join waiting signals, then label these turns as of `now`; returns the keys of turns whose label is new.

    Ids without a turn are skipped. Holds the turns until the transaction ends, so that two jobs cannot both label one.
    """
    staging.join_waiting(project_id, turn_refs)
    turns = list(Turn.objects.select_for_update().filter(turn_id__in=turn_refs).order_by("id"))
    if not turns:
        return []
    window = timedelta(seconds=project_settings(project_id).decision_window_s)
    recipe_version, recipe = current_recipe()
    heard, first_shown = signals_of(turns)
    present = Label.objects.in_bulk([turn.label_id for turn in turns if turn.label_id])
    labels, dirty = [], []
    for turn in turns:
        before = _state(turn)
        if turn.pk in first_shown:
            _note_shown(turn, closes_at=first_shown[turn.pk] + window)
        verdict = label_turn(heard[turn.pk], at=turn.at, closes_at=turn.settle_due, now=now, recipe=recipe)
        if verdict is None:
            _reopen(turn)
        elif not _says(present.get(turn.label_id), verdict, recipe_version):
            labels.append(_label(turn, verdict, recipe_version))
            turn.outcome = verdict.outcome
            turn.settled_at = turn.settled_at or now
        if _state(turn) != before or (labels and labels[-1].turn is turn):
            dirty.append(turn)
    for label in Label.objects.bulk_create(labels):
        label.turn.label = label
    Turn.objects.bulk_update(dirty, _LABEL_FIELDS, batch_size=500)
    new = [label.turn_id for label in labels]
    if new:
        triage_turns(project_id, [label.turn for label in labels])
        turns_settled.send(sender=None, project_id=project_id, turn_ids=new)
    return new


def expire_orphans(project_id: UUID, *, now: datetime) -> int:
    """Give up on signals whose turn has not come within the project's horizon; returns how many expired.

    One whose turn did come, but was stored at the same moment, is labelled instead.
    """
    old = _old_orphans(project_id, now)
    has_turn = Exists(Turn.objects.filter(turn_id=OuterRef("turn_ref")))
    missed = list(old.filter(has_turn).values_list("turn_ref", flat=True).distinct())
    if missed:
        enqueue(LABEL_JOB, project_id=project_id, payload={"turns": missed})
    expired = list(old.filter(~has_turn).select_for_update().order_by("id").values_list("signal_id", "received_at"))
    names = [name for name, _ in expired]
    UserSignal.objects.filter(signal_id__in=names).update(expired_at=now)
    LedgerItem.objects.filter(item_id__in=names).update(outcome="expired")
    for hour, number in Counter(outcomes.hour_of(received_at) for _, received_at in expired).items():
        outcomes.move(project_id, hour, "accepted", "expired", number)
    return len(expired)


_LABEL_FIELDS = ["label", "outcome", "settled_at", "settle_due", "is_shown"]


def _state(turn: Turn) -> tuple[object, ...]:
    return turn.label_id, turn.outcome, turn.settled_at, turn.settle_due, turn.is_shown


def _note_shown(turn: Turn, *, closes_at: datetime) -> None:
    """A turn fetched ahead is open from when the user saw it, unless it is settled already."""
    turn.is_shown = True
    if turn.settled_at is None:
        turn.settle_due = max(turn.settle_due or closes_at, closes_at)


def _reopen(turn: Turn) -> None:
    """What settled the turn was superseded while its window is still open."""
    turn.label = turn.outcome = turn.settled_at = None


def _says(label: Label | None, verdict: Verdict, recipe_version: int) -> bool:
    return label is not None and (label.outcome, label.value, label.reason, label.recipe_version) == (
        verdict.outcome, verdict.value, verdict.reason, recipe_version,
    )  # fmt: skip


def _label(turn: Turn, verdict: Verdict, recipe_version: int) -> Label:
    return Label(
        turn=turn, recipe_version=recipe_version, outcome=verdict.outcome, value=verdict.value, reason=verdict.reason
    )


def signals_of(turns: Iterable[Turn]) -> tuple[dict[int, list[Heard]], dict[int, datetime]]:
    """(what was heard about each turn, when each was first said to be shown), by the turns' keys."""
    heard: dict[int, list[Heard]] = defaultdict(list)
    first_shown: dict[int, datetime] = {}
    rows = UserSignal.objects.filter(turn__in=[turn.pk for turn in turns]).values_list(
        "turn_id", "received_at", "signal_id", "kind", "at", "value", "user", "supersedes"
    )
    for turn_key, received_at, name, kind, at, value, user, supersedes in rows:
        heard[turn_key].append(Heard(id=name, kind=kind, at=at, value=value, user=user, supersedes=supersedes))
        if kind == "shown":
            first_shown[turn_key] = min(first_shown.get(turn_key, received_at), received_at)
    return heard, first_shown


def _due(now: datetime) -> QuerySet[Turn]:
    return Turn.objects.filter(settled_at=None, settle_due__lte=now)


def _old_orphans(project_id: UUID, now: datetime) -> QuerySet[UserSignal]:
    patience = timedelta(hours=project_settings(project_id).orphan_hours)
    return UserSignal.objects.filter(turn=None, turn_ref__isnull=False, expired_at=None, received_at__lt=now - patience)


def _project(job: ClaimedJob) -> UUID:
    assert job.project_id is not None
    return job.project_id
