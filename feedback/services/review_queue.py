"""Who looks at which flagged turn: the queue, reservations with a lease, skips, drafts, and what people put into it.

Two reviewers are never given the same turn: a flag is claimed with its row locked (others skip it), and the database
has one place for a turn for every answer it still needs. Whoever stops sending heartbeats loses the place, never the
answer. Inside a tenant.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Case, Exists, IntegerField, OuterRef, QuerySet, Value, When
from django.utils import timezone

from feedback.models import Flag, FlagState, ReviewDraft, ReviewReservation, ReviewResponse, Turn
from feedback.services.review import num_needed
from feedback.triage import BY_HAND, RULES, SAMPLE
from registry.errors import Conflict, InvalidInput, NotFound
from registry.services import audit
from registry.tenancy import current_project_id

LEASE = timedelta(seconds=90)
HEARTBEAT_S = 30
REACH = timedelta(days=90)  # flags older than this wait on the list of flags, not in the queue
MAX_SAMPLE = 200
MAX_REASON = 500
MAX_DRAFT = 8000  # characters of a draft's fields together
FIELDS = ("choice", "reward", "gold", "problem", "benchmark", "note")  # of the review form


@dataclass(frozen=True, kw_only=True, slots=True)
class Narrowed:
    """The part of the queue that is asked for; empty: all of it."""

    rule: str = ""
    policy: str = ""
    version: int | None = None  # of the policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """Whether this person has a turn's place. `others`: who has it instead."""

    is_mine: bool
    others: tuple[str, ...] = ()


def open_flags(narrowed: Narrowed, *, now: datetime) -> QuerySet[Flag]:
    """What waits for answers, the most telling first: by the rule's severity, then the newest."""
    flags = Flag.objects.filter(state=FlagState.OPEN, created_at__gte=now - REACH)
    if narrowed.rule:
        flags = flags.filter(rule=narrowed.rule)
    if narrowed.policy:
        flags = flags.filter(turn__policy=narrowed.policy)
    if narrowed.version is not None:
        flags = flags.filter(turn__version=narrowed.version)
    return flags.annotate(severity=_severity()).order_by("-severity", "-created_at", "-id")


def hold_next(*, reviewer: str, narrowed: Narrowed = Narrowed(), now: datetime | None = None) -> Flag | None:
    """Reserve the first flag that nobody else has and this person has neither answered, skipped nor got already."""
    now = now or timezone.now()
    passed: list[int] = []
    with transaction.atomic():
        needed = _needed()
        while True:
            flag = (
                _free(narrowed, reviewer, needed, now)
                .exclude(pk__in=passed)
                .select_for_update(of=("self",), skip_locked=True)
                .first()
            )
            if flag is None:
                return None
            if _reserve(flag, reviewer, needed, now=now, is_new=True):
                return flag
            passed.append(flag.pk)


def hold(flag_id: int, *, reviewer: str, is_opening: bool = False, now: datetime | None = None) -> Hold:
    """Take or keep the place of one flag's turn: opened by hand, or a heartbeat. Opening gives one's other places up.

    Raises NotFound when the flag is gone, which is also how a heartbeat learns that its turn was deleted.
    """
    now = now or timezone.now()
    with transaction.atomic():
        flag = Flag.objects.select_for_update(of=("self",)).filter(pk=flag_id).first()
        if flag is None:
            raise NotFound("this flag is gone: its turn was deleted")
        if is_opening:
            ReviewReservation.objects.filter(reviewer=reviewer).exclude(turn=flag.turn_id).delete()
        answered = flag.responses.filter(reviewer=reviewer, withdrawn_at__isnull=True).exists()
        if flag.state == FlagState.OPEN and not answered and _reserve(flag, reviewer, _needed(), now=now, is_new=False):
            return Hold(is_mine=True)
        live = ReviewReservation.objects.filter(turn=flag.turn_id, lease_until__gt=now).exclude(reviewer=reviewer)
        return Hold(is_mine=False, others=tuple(live.order_by("slot").values_list("reviewer", flat=True)))


def held_by(reviewer: str, *, now: datetime | None = None) -> Flag | None:
    """The open flag of the turn this person reserved last: where they go on."""
    live = ReviewReservation.objects.filter(reviewer=reviewer, lease_until__gt=now or timezone.now())
    turn = live.order_by("-taken_at", "-id").values_list("turn_id", flat=True).first()
    if turn is None:
        return None
    flags = Flag.objects.filter(turn=turn, state=FlagState.OPEN).annotate(severity=_severity())
    answered = ReviewResponse.objects.filter(flag=OuterRef("pk"), reviewer=reviewer, withdrawn_at__isnull=True)
    return flags.filter(~Exists(answered)).order_by("-severity", "-created_at", "-id").first()


def release(flag_id: int, *, reviewer: str) -> None:
    """Give a turn's place up; nothing happens when this person has none."""
    ReviewReservation.objects.filter(turn__flags=flag_id, reviewer=reviewer).delete()


def skip(flag_id: int, *, reviewer: str) -> None:
    """Leave a turn to others: this person is not given it again until they ask for what they skipped."""
    with transaction.atomic():
        flag = _find(flag_id)
        ReviewDraft.objects.update_or_create(
            turn_id=flag.turn_id, reviewer=reviewer, defaults={"skipped_at": timezone.now()}
        )
        release(flag_id, reviewer=reviewer)


def look_again(*, reviewer: str) -> int:
    """Put what this person skipped back into their queue; returns how many turns."""
    return ReviewDraft.objects.filter(reviewer=reviewer, skipped_at__isnull=False).update(skipped_at=None)


def save_draft(flag_id: int, body: Mapping[str, str], *, reviewer: str) -> None:
    """Keep a form that is not sent yet. Raises NotFound, and InvalidInput for what no form of ours would send."""
    unknown = [name for name in body if name not in FIELDS]
    if unknown:
        raise InvalidInput(f"no field {unknown[0][:40]!r} in this form", field="draft")
    if sum(len(text) for text in body.values()) > MAX_DRAFT or any("\x00" in text for text in body.values()):
        raise InvalidInput(f"a draft has at most {MAX_DRAFT:,} characters, none of them NUL", field="draft")
    flag = _find(flag_id)
    ReviewDraft.objects.update_or_create(turn_id=flag.turn_id, reviewer=reviewer, defaults={"body": dict(body)})


def raise_flag(turn_ref: str, *, reason: str, raised_by: str) -> Flag:
    """A person asks for a look at a turn. Raises NotFound, InvalidInput, and Conflict while such a flag is open."""
    reason = reason.strip() or "flagged by hand"
    if len(reason) > MAX_REASON or "\x00" in reason:
        raise InvalidInput(f"a reason has at most {MAX_REASON} characters, none of them NUL", field="reason")
    turn = Turn.objects.filter(turn_id=turn_ref).first()
    if turn is None:
        raise NotFound("no such turn; it may have been deleted")
    try:
        with transaction.atomic():
            flag = Flag.objects.create(turn=turn, rule=BY_HAND, reason=reason, raised_by=raised_by)
    except IntegrityError:
        raise Conflict("this turn is flagged by hand already and waits for review") from None
    audit("raise", "flag", flag.pk, actor=raised_by, after={"turn": turn_ref, "rule": BY_HAND}, reason=reason)
    return flag


def queue_sample(number: int, *, since: datetime, raised_by: str) -> int:
    """Put settled turns that no rule flagged into the queue, drawn at random; returns how many there were to put.

    What reviewers find in them is what triage misses. Raises InvalidInput.
    """
    if not 1 <= number <= MAX_SAMPLE:
        raise InvalidInput(f"found {number}; draw 1 to {MAX_SAMPLE}", field="number")
    flagged = Flag.objects.filter(turn=OuterRef("pk"))
    unflagged = Turn.objects.filter(~Exists(flagged), settled_at__isnull=False, at__gte=since)
    unflagged = unflagged.filter(source__in=("production", "simulated", "import"))
    drawn = list(unflagged.order_by("?").values_list("pk", flat=True)[:number])
    reason = f"one of {len(drawn)} turns drawn at random since {since:%Y-%m-%d %H:%M} UTC"
    Flag.objects.bulk_create(
        [Flag(turn_id=turn, rule=SAMPLE, reason=reason, raised_by=raised_by) for turn in drawn], ignore_conflicts=True
    )
    audit("queue", "review sample", len(drawn), actor=raised_by, after={"since": since.isoformat()})
    return len(drawn)


def _needed() -> int:
    return num_needed(current_project_id())


def _find(flag_id: int) -> Flag:
    flag = Flag.objects.filter(pk=flag_id).first()
    if flag is None:
        raise NotFound("this flag is gone: its turn was deleted")
    return flag


def _severity() -> Case:
    known = [When(rule=name, then=Value(rule.severity)) for name, rule in RULES.items()]
    return Case(*known, default=Value(0), output_field=IntegerField())


def _free(narrowed: Narrowed, reviewer: str, needed: int, now: datetime) -> QuerySet[Flag]:
    """Without what others hold, as far as can be seen before the lock, and without what this person is done with."""
    mine = ReviewReservation.objects.filter(turn=OuterRef("turn_id"), reviewer=reviewer, lease_until__gt=now)
    answered = ReviewResponse.objects.filter(flag=OuterRef("pk"), reviewer=reviewer, withdrawn_at__isnull=True)
    skipped = ReviewDraft.objects.filter(turn=OuterRef("turn_id"), reviewer=reviewer, skipped_at__isnull=False)
    free = open_flags(narrowed, now=now).exclude(turn__in=_taken(reviewer, needed, now))
    return free.filter(~Exists(mine), ~Exists(answered), ~Exists(skipped))


def _taken(reviewer: str, needed: int, now: datetime) -> list[int]:
    """Turns in which other people have every place that is left."""
    live = ReviewReservation.objects.filter(lease_until__gt=now).exclude(reviewer=reviewer)
    held = Counter(live.values_list("turn_id", flat=True))
    if needed == 1:
        return list(held)
    answers = _num_answers(list(held))
    return [turn for turn, number in held.items() if number + answers[turn] >= needed]


def _num_answers(turns: Sequence[int]) -> Counter[int]:
    """People whose answers to an open flag stand, by turn."""
    standing = ReviewResponse.objects.filter(
        flag__turn__in=turns, flag__state=FlagState.OPEN, withdrawn_at__isnull=True
    ).values_list("flag__turn_id", "reviewer")
    return Counter(turn for turn, _ in standing.distinct())


def _reserve(flag: Flag, reviewer: str, needed: int, *, now: datetime, is_new: bool) -> bool:
    """With the flag's row locked: take a place of its turn, or renew one's own unless it must be new.

    Two flags of one turn have two locks; there the unique place decides.
    """
    places = ReviewReservation.objects.filter(turn=flag.turn_id)
    places.filter(lease_until__lte=now).delete()
    taken = dict(places.values_list("reviewer", "slot"))
    if reviewer in taken:
        return not is_new and places.filter(reviewer=reviewer).update(lease_until=now + LEASE) == 1
    if len(taken) + _num_answers([flag.turn_id])[flag.turn_id] >= needed:
        return False
    slot = min(set(range(needed)) - set(taken.values()))
    place = ReviewReservation(turn_id=flag.turn_id, slot=slot, reviewer=reviewer, taken_at=now, lease_until=now + LEASE)
    ReviewReservation.objects.bulk_create([place], ignore_conflicts=True)
    return places.filter(reviewer=reviewer, slot=slot).exists()
