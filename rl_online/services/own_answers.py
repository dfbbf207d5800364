"""Answers of the serving line that a stage may ask something about, newest first. Inside a tenant; reads only."""

from collections import Counter
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, QuerySet

from feedback.models import Turn, TurnPayload
from rl_online.collecting import LIVE_SOURCES, RL, Line, fault_of, payloads_of
from rl_online.models import BatchSample, UpdateKind

LOOKED_AT = 4  # times as many turns as are wanted


@dataclass(frozen=True, kw_only=True)
class OwnAnswers:
    turns: list[Turn]  # with their tokens recorded
    payloads: dict[str, TurnPayload]  # by turn
    dropped: Counter[str]  # reason -> turns


def own_answers(
    line: Line, *, max_lag: int, most: int, needs_logprobs: bool, kind: str = UpdateKind.DISTILL
) -> OwnAnswers:
    """Within the staleness cap, and in no batch of the kind yet; about `most` of them, looked for in four times
    as many turns.
    """
    dropped: Counter[str] = Counter()
    turns = []
    for turn in _unspent(line, max_lag, kind)[: LOOKED_AT * most]:
        reason = fault_of(turn, line, kind=RL, max_lag=max_lag)
        if reason is None or (reason == "incomplete" and not needs_logprobs):
            turns.append(turn)
        else:
            dropped[reason] += 1
    payloads = {
        name: one for name, one in payloads_of(turns).items() if one.completion_token_ids and one.prompt_token_ids
    }
    whole = [turn for turn in turns if turn.turn_id in payloads]
    dropped["no token ids"] += len(turns) - len(whole)
    return OwnAnswers(turns=whole, payloads=payloads, dropped=+dropped)


def _unspent(line: Line, max_lag: int, kind: str) -> QuerySet[Turn]:
    spent = BatchSample.objects.filter(kind=kind, turn_ref=OuterRef("turn_id"), is_correction=False)
    versions = [one.version for one in line.checkpoints[: max_lag + 1]]
    turns = Turn.objects.filter(~Exists(spent), settled_at__isnull=False, label__isnull=False)
    turns = turns.filter(policy=line.policy.name, version__in=versions, source__in=LIVE_SOURCES)
    return turns.select_related("label", "session").order_by("-settled_at", "-turn_id")
