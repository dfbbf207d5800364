"""How far a project has come from nothing to its first promotion, and what its clients got wrong. Inside a tenant."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from feedback.models import LastRefusal, Turn, UserSignal
from feedback.wire import UNSHOWN_SOURCES
from registry.models import ApiKey, Policy
from rl_online.models import UpdateRun, UpdateState

NUM_REFUSALS = 5


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
    return [
        Step(
            name="key",
            title="A key",
            words="what your program shows instead of a password",
            url="keys",
            at=ApiKey.objects.filter(revoked_at=None)
            .order_by("created_at")
            .values_list("created_at", flat=True)
            .first(),
        ),
        Step(
            name="policy",
            title="A policy",
            words="a model that Strop serves and improves; not needed to send what another model answered",
            url="policies",
            at=Policy.objects.order_by("created_at").values_list("created_at", flat=True).first(),
        ),
        Step(
            name="turn",
            title="First turn",
            words="an answer, from the gateway or sent by you",
            url="turns",
            at=turns.order_by("at").values_list("received_at", flat=True).first(),
        ),
        Step(
            name="signal",
            title="First signal",
            words="what a user did with an answer",
            url="signals",
            at=UserSignal.objects.order_by("at").values_list("received_at", flat=True).first(),
        ),
        Step(
            name="label",
            title="First label",
            words="the turn is settled: accept, reject or silence",
            url="turns",
            at=turns.filter(settled_at__isnull=False).order_by("at").values_list("settled_at", flat=True).first(),
        ),
        Step(
            name="update",
            title="First update",
            words="enough labelled turns of your own policy were learnt from",
            url="updates",
            at=UpdateRun.objects.order_by("created_at").values_list("created_at", flat=True).first(),
        ),
        Step(
            name="promotion",
            title="First promotion",
            words="a checkpoint proved itself and serves",
            url="checkpoints",
            at=UpdateRun.objects.filter(state=UpdateState.PROMOTED)
            .order_by("created_at")
            .values_list("finished_at", flat=True)
            .first(),
        ),
    ]


def refusals() -> list[LastRefusal]:
    """What was refused last, newest first, each once for a key and kind of end."""
    return list(LastRefusal.objects.exclude(Q(outcome="duplicate")).order_by("-last_at")[:NUM_REFUSALS])
