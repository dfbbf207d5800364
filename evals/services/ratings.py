"""Live turns and sessions before judges of single answers: opened once, judged once, superseded when they go on.

A rating is opened in the transaction that found its subject to be over, with the job that will judge it, and written in
the transaction that ends that job: a worker that dies in between asks again, but nothing is recorded twice. What a
judge gives a turn is also a Score named `judge:<name>`, which a reward spec may weigh. Inside a tenant.

The job's handler is the loop's, which alone may read what was said (rl_online.services.live_judging).
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from evals.judging.completer import Completer
from evals.judging.judge import Judge
from evals.judging.pointwise import Item, Rating, RatingCall, late, rate
from evals.models import (
    JudgeCall,
    JudgeDuty,
    JudgeVersion,
    LiveRating,
    RatingState,
    Score,
    ScoreStatus,
    Subject,
    VerdictKind,
)
from evals.services.judges import duty_of, judges_itself
from evals.services.panels import score_panels
from evals.services.runs import storable
from jobs.services import enqueue

RATE_JOB = "evals.rate_live"
AT_ONCE = 10  # ratings of a job, asked for together
TIMEOUT_S = 60.0  # of a worker's time; Celery ends a task at 90 s
ITSELF = "a policy may not judge itself"
VERDICTS = {"scored": "scored", "invalid": VerdictKind.INVALID, "error": VerdictKind.ERROR}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rated:
    """A turn or session that is over, as far as opening its rating needs to know."""

    subject: str  # of Subject
    ref: str  # the sender's id
    revision: str = ""  # of a session: which turns it had
    rated: str = ""  # <policy>@<version> or a model
    num_chars: int = 0  # of the answer
    fault: str = ""  # why there is nothing to judge


def live_duties(subject: str) -> list[JudgeDuty]:
    """Of the judges that judge these."""
    return list(JudgeDuty.objects.filter(live=subject).select_related("judge").order_by("judge_id"))


def open_ratings(duty: JudgeDuty, found: Iterable[Rated]) -> list[LiveRating]:
    """Ratings for those that have none, with the jobs that will judge them; older revisions are superseded.

    What this judge must not judge is opened as skipped, with the reason.
    """
    opened = [row for one in found if (row := _open(duty, one)) is not None]
    ask(duty.judge, [row for row in opened if row.state == RatingState.WAITING])
    return opened


def ask(judge: JudgeVersion, ratings: Sequence[LiveRating]) -> None:
    """Jobs for these; each rating is in exactly one."""
    for start in range(0, len(ratings), AT_ONCE):
        ids = [str(row.id) for row in ratings[start : start + AT_ONCE]]
        enqueue(RATE_JOB, project_id=judge.project_id, payload={"judge": judge.pk, "ratings": ids})


def _open(duty: JudgeDuty, found: Rated) -> LiveRating | None:
    reason = found.fault
    if not reason and not duty.may_judge_itself and judges_itself(duty.judge, found.rated):
        reason = ITSELF
    mine = LiveRating.objects.filter(judge=duty.judge, subject=found.subject, subject_ref=found.ref)
    if mine.filter(revision=found.revision).exists():
        return None
    mine.filter(superseded_at=None).update(superseded_at=timezone.now())
    return LiveRating.objects.create(
        judge=duty.judge,
        subject=found.subject,
        subject_ref=found.ref,
        revision=found.revision,
        rated=found.rated,
        num_chars=found.num_chars,
        state=RatingState.SKIPPED if reason else RatingState.WAITING,
        reason=storable(reason),
    )


def waiting(ids: Iterable[str]) -> list[LiveRating]:
    """Those of a job that are still to be judged."""
    rows = LiveRating.objects.filter(id__in=[UUID(one) for one in ids], state=RatingState.WAITING, superseded_at=None)
    return list(rows.select_related("judge").order_by("created_at", "id"))


async def rate_all(
    completer: Completer, judge: Judge, items: Sequence[Item], cache: dict[str, RatingCall]
) -> list[Rating]:
    """All at once, in the order given; what is late could not be judged."""
    async with completer:
        return list(await asyncio.gather(*(_rate(completer, judge, item, cache) for item in items)))


async def _rate(completer: Completer, judge: Judge, item: Item, cache: dict[str, RatingCall]) -> Rating:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await rate(completer, judge, item, cache=cache)
    except TimeoutError:
        return late(item, f"no mark within {TIMEOUT_S:.0f} s")


def record_rating(row: LiveRating, rating: Rating) -> bool:
    """The calls, the value, and the Score of a turn. False where it was judged or superseded meanwhile."""
    done = _close(row, rating.state.value, value=rating.value, mark=rating.last.mark, reason=rating.reason)
    if done:
        JudgeCall.objects.bulk_create(_call_row(row, call) for call in rating.calls)
        if row.subject == Subject.TURN:
            _score_turn(row, rating)
            score_panels(row)
    return done


def close_without(row: LiveRating, state: str, reason: str) -> bool:
    """Nobody was asked: skipped, or blocked."""
    return _close(row, state, value=None, mark=None, reason=reason)


def _close(row: LiveRating, state: str, *, value: float | None, mark: float | None, reason: str) -> bool:
    mine = LiveRating.objects.filter(pk=row.pk, state=RatingState.WAITING, superseded_at=None)
    return bool(mine.update(state=state, value=value, mark=mark, reason=storable(reason), judged_at=timezone.now()))


def _call_row(row: LiveRating, call: RatingCall) -> JudgeCall:
    return JudgeCall(
        rating=row,
        judge_id=row.judge_id,
        cache_key=call.cache_key,
        verdict=VERDICTS[call.state.value],
        value=call.value,
        mark=call.mark,
        raw=storable(call.raw),
        error=storable(call.error or call.fault),
        usage=dict(call.usage),
        cost_usd=call.cost_usd,
        latency_ms=call.latency_ms,
        is_cached=call.is_cached,
    )


def _score_turn(row: LiveRating, rating: Rating) -> None:
    status = {"scored": ScoreStatus.SCORED, "invalid": ScoreStatus.UNSCORED}.get(rating.state.value, ScoreStatus.ERROR)
    Score.objects.update_or_create(
        turn_ref=row.subject_ref,
        scorer=scorer_of(row.judge),
        scorer_version=str(row.judge_id),
        defaults={
            "status": status,
            "value": rating.value,
            "explanation": storable(rating.last.raw[:2000] or rating.reason),
            "parts": {"mark": rating.last.mark, "judge": row.judge_id, "rating": str(row.pk)},
            "usage": dict(rating.last.usage),
            "cost_usd": rating.last.cost_usd,
            "latency_ms": rating.last.latency_ms,
        },
    )


def scorer_of(judge: JudgeVersion) -> str:
    """The name under which a reward spec weighs it."""
    return f"judge:{judge.name}"


def blocked_ratings(judge: JudgeVersion) -> QuerySet[LiveRating]:
    """Those that could not be had."""
    return LiveRating.objects.filter(judge=judge, state=RatingState.ERROR, superseded_at=None)


def ask_again(judge: JudgeVersion, *, limit: int) -> int:
    """Blocked ratings wait once more, at most `limit` of them; returns how many."""
    ids = list(blocked_ratings(judge).order_by("created_at", "id").values_list("id", flat=True)[:limit])
    blocked = LiveRating.objects.filter(Q(id__in=ids) & Q(state=RatingState.ERROR))
    blocked.update(state=RatingState.WAITING, reason="")
    ask(judge, list(LiveRating.objects.filter(id__in=ids)))
    return len(ids)


def may_still(row: LiveRating) -> str:
    """Why a rating that waits must not be judged any more; empty when it may."""
    if judges_itself(row.judge, row.rated) and not duty_of(row.judge).may_judge_itself:
        return ITSELF
    return ""
