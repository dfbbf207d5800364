"""Flag the turns that feedback.triage finds; once for each turn and rule, however often it looks. Inside a tenant."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from feedback.models import Flag, Turn, TurnPayload, UserSignal
from feedback.triage import Seen, triage

HISTORY = 50  # turns of the slice whose lengths are compared with
HISTORY_REACH = timedelta(days=30)

Scores = Mapping[str, float | None]
Slice = tuple[str | None, ...]


def triage_turn(project_id: UUID, turn_ref: str, scores: Scores) -> None:
    """Look at one turn, by the sender's id, with scores that another room measured; unknown ids are skipped."""
    turns = list(Turn.objects.filter(turn_id=turn_ref))
    triage_turns(project_id, turns, scores={turn_ref: scores})


def triage_turns(project_id: UUID, turns: Sequence[Turn], *, scores: Mapping[str, Scores] | None = None) -> None:
    """Look at these turns; `scores` by turn id, none for those that are not in it."""
    if not turns:
        return
    payloads = _payloads(project_id, turns)
    retries = _retries(turns)
    lengths = _lengths_before(turns)
    flags = []
    for turn in turns:
        payload = payloads.get(turn.turn_id)
        if payload is None:
            continue  # redacted: there is nothing to look at
        by_turn = retries[turn.session_id]
        seen = Seen(
            outcome=turn.outcome,
            completion=payload.completion,
            has_tool_calls=bool(payload.tool_calls),
            finish_reason=turn.finish_reason,
            error=turn.error,
            scores=(scores or {}).get(turn.turn_id, {}),
            lengths_before=lengths[_slice(turn)],
            retried_at=max(by_turn[turn.pk], default=None),
            session_retries=[at for moments in by_turn.values() for at in moments],
        )
        flags += [Flag(turn=turn, rule=finding.rule, reason=finding.reason) for finding in triage(seen)]
    Flag.objects.bulk_create(flags, ignore_conflicts=True)


def _payloads(project_id: UUID, turns: Sequence[Turn]) -> dict[str, TurnPayload]:
    times = [turn.at for turn in turns]
    rows = TurnPayload.objects.filter(
        project_id=project_id, turn_id__in=[turn.turn_id for turn in turns], at__range=(min(times), max(times))
    )
    return {row.turn_id: row for row in rows.only("project_id", "turn_id", "at", "completion", "tool_calls")}


def _retries(turns: Sequence[Turn]) -> dict[int, dict[int, list[datetime]]]:
    """When turns were retried, by session and turn, for the sessions of these turns."""
    found: dict[int, dict[int, list[datetime]]] = defaultdict(lambda: defaultdict(list))
    sessions = {turn.session_id for turn in turns}
    rows = UserSignal.objects.filter(kind="retry", turn__session__in=sessions)
    for session, turn, at in rows.values_list("turn__session_id", "turn_id", "at"):
        found[session][turn].append(at)
    return found


def _lengths_before(turns: Sequence[Turn]) -> dict[Slice, list[int]]:
    """Lengths of the newest turns before the first of these, for each of their slices."""
    first: dict[Slice, datetime] = {}
    for turn in turns:
        first[_slice(turn)] = min(first.get(_slice(turn), turn.at), turn.at)
    return {key: _lengths(key, at) for key, at in first.items()}


def _lengths(key: Slice, before: datetime) -> list[int]:
    policy, model, surface, language = key
    earlier = Turn.objects.filter(
        policy=policy, model=model, surface=surface, language=language, is_shown=True,
        at__gte=before - HISTORY_REACH, at__lt=before,
    )  # fmt: skip
    return list(earlier.order_by("-at").values_list("num_completion_chars", flat=True)[:HISTORY])


def _slice(turn: Turn) -> Slice:
    return turn.policy, turn.model, turn.surface, turn.language
