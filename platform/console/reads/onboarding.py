"""How far a project has come from nothing to its first promotion, and what its clients got wrong. Inside a tenant."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from feedback.models import LastRefusal, Turn, UserSignal
from feedback.wire import UNSHOWN_SOURCES
from registry.models import ApiKey, Policy
from rl_online.models import UpdateRun, UpdateState

NUM_REFUSALS = 5
WAY = (  # name, title, words, name of the page to go to
    ("key", "A key", "what your program shows instead of a password", "keys"),
    (
        "policy",
        "A policy",
        "a model that Strop serves and improves; not needed to send what another model answered",
        "policies",
    ),
    ("turn", "First turn", "an answer, from the gateway or sent by you", "turns"),
    ("signal", "First signal", "what a user did with an answer", "signals"),
    ("label", "First label", "the turn is settled: accept, reject or silence", "turns"),
    ("update", "First update", "enough labelled turns of your own policy were learnt from", "updates"),
    ("promotion", "First promotion", "a checkpoint proved itself and serves", "checkpoints"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of the way, and when it was first taken; None: not yet."""

    name: str
    title: str
    words: str
    url: str  # name of the page to go to
    at: datetime | None

    @property
    def is_done(self) -> bool:
        return self.at is not None


def steps() -> list[Step]:
    """In the order in which they happen; each asks for one row by an index."""
    turns = Turn.objects.exclude(source__in=UNSHOWN_SOURCES)
    moments = {
        "key": _first(ApiKey.objects.filter(revoked_at=None), "created_at"),
        "policy": _first(Policy.objects.all(), "created_at"),
        "turn": _first(turns, "at", tell="received_at"),
        "signal": _first(UserSignal.objects.all(), "at", tell="received_at"),
        "label": _first(turns.filter(settled_at__isnull=False), "at", tell="settled_at"),
        "update": _first(UpdateRun.objects.all(), "created_at"),
        "promotion": _first(UpdateRun.objects.filter(state=UpdateState.PROMOTED), "created_at", tell="finished_at"),
    }
    return [Step(name=name, title=title, words=words, url=url, at=moments[name]) for name, title, words, url in WAY]


def _first(rows: QuerySet[Any], order: str, *, tell: str = "") -> datetime | None:
    """`tell` (default: `order`) of the row that comes first by `order`."""
    return rows.order_by(order).values_list(tell or order, flat=True).first()


def refusals() -> list[LastRefusal]:
    """What was refused last, newest first, each once for a key and kind of end."""
    return list(LastRefusal.objects.exclude(Q(outcome="duplicate")).order_by("-last_at")[:NUM_REFUSALS])
