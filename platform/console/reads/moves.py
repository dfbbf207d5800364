"""What changed what serves or what counts: promotions, rollbacks, canaries, and recipes and reward specs put in force.

Thin marked lines across every chart over time. Inside a tenant; from the audit trail.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from console.charts.drawing import Mark
from registry.models import AuditEvent, Policy

VERBS = ("promote", "promote against the gate", "roll back", "start canary")  # that change what serves
SIGNS = {"roll back": "↩ ", "start canary": "canary "}
MAX_MOVES = 100  # the newest
CROWDED = 0.07  # of a figure's width: a mark nearer to the last labelled one is a line without a word


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    at: datetime
    text: str  # short, for the edge of a figure


def moves(since: datetime, until: datetime, *, policy: Policy | None = None) -> list[Move]:
    """By time, in [since, until): of one policy, or of all, which are named then."""
    what_serves = Q(verb__in=VERBS, object_kind="checkpoint")
    if policy is not None:
        what_serves &= Q(object_id__startswith=f"{policy.name}@")
    recipes = Q(verb="activate", object_kind__in=("reward spec", "label recipe"))
    events = AuditEvent.objects.filter(what_serves | recipes, at__gte=since, at__lt=until)
    return [
        Move(at=event.at, text=_text(event, is_named=policy is None))
        for event in events.order_by("-at")[:MAX_MOVES][::-1]
        if policy is None or (event.after or {}).get("policy") in (None, policy.name)
    ]


def marks(moves: Sequence[Move], times: Sequence[datetime], local: Callable[[datetime], datetime]) -> list[Mark]:
    """Lines for all moves across a figure of these times; words only where there is room for them."""
    if not times:
        return []
    room = (times[-1] - times[0]) * CROWDED
    found: list[Mark] = []
    last: datetime | None = None
    for move in moves:
        is_crowded = last is not None and move.at - last < room
        found.append(Mark(at=local(move.at), text="" if is_crowded else move.text))
        last = last if is_crowded else move.at
    return found


def _text(event: AuditEvent, *, is_named: bool) -> str:
    """@4, ↩ @3, canary @5, reward default v2, recipe 3; with names editor@4."""
    if event.verb == "activate":
        return f"recipe {event.object_id}" if event.object_kind == "label recipe" else f"reward {event.object_id}"
    serving = str((event.after or {}).get("serving", event.object_id))
    return f"{SIGNS.get(event.verb, '')}{serving if is_named else '@' + serving.rpartition('@')[2]}"
