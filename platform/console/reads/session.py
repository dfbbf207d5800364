"""One session: a window of its turns, the newest first to be read, and the signals about the whole.

A session may have tens of thousands of turns; a page shows a window and asks for the ones before and after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db.models import Q, QuerySet

from console.reads.turn_views import TurnView, views_of
from feedback.models import AgentSession, Turn, UserSignal
from registry.errors import InvalidInput, NotFound

WINDOW = 40  # turns
AFTER_SOUGHT = 5  # turns that a window shows after the one that was asked for
MAX_SESSION_SIGNALS = 200
Side = Literal["before", "after"]
START = f"{-(2**31) + 1}~0001-01-01T00:00:00+00:00~0"  # before every turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a turn stands in its session: by the sender's index, then time, then key."""

    index: int
    at: datetime
    key: int

    @classmethod
    def of(cls, turn: Turn) -> "Place":
        return cls(index=turn.index, at=turn.at, key=turn.pk)

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Raises InvalidInput."""
        try:
            index, at, key = text.split("~")
            place = cls(index=int(index), at=datetime.fromisoformat(at), key=int(key))
            if place.at.tzinfo is None or abs(place.index) >= 2**31 or not 0 <= place.key < 2**63:
                raise ValueError
        except ValueError:
            raise InvalidInput(f"{text[:60]!r} is no place in a session; open it anew", field="place") from None
        return place

    def __str__(self) -> str:
        return f"{self.index}~{self.at.isoformat()}~{self.key}"

    def before(self) -> Q:
        # The first condition says nothing new, but an index can use it.
        return Q(index__lte=self.index) & (
            Q(index__lt=self.index)
            | Q(index=self.index, at__lt=self.at)
            | Q(index=self.index, at=self.at, pk__lt=self.key)
        )

    def after(self) -> Q:
        return Q(index__gte=self.index) & (
            Q(index__gt=self.index)
            | Q(index=self.index, at__gt=self.at)
            | Q(index=self.index, at=self.at, pk__gt=self.key)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Neighbouring turns, oldest first, and how many more there are on each side."""

    turns: list[TurnView]
    num_before: int
    num_after: int

    @property
    def first(self) -> Place | None:
        return Place.of(self.turns[0].turn) if self.turns else None

    @property
    def last(self) -> Place | None:
        return Place.of(self.turns[-1].turn) if self.turns else None


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionView:
    session: AgentSession
    window: Window
    signals: list[UserSignal]  # about the whole session, oldest first
    num_signals_hidden: int  # older ones that the page leaves out


def find_session(session_id: str, *, sought: str | None = None) -> SessionView:
    """With `sought`, a turn's id, the window holds that turn; without, the newest. Raises NotFound."""
    session = _session(session_id)
    signals, num_hidden = session_signals(session_id)
    return SessionView(
        session=session,
        window=_around(session, sought) if sought else _newest(session),
        signals=signals,
        num_signals_hidden=num_hidden,
    )


def more_turns(session_id: str, place: Place, side: Side) -> Window:
    """The window next to `place`; of `num_before` and `num_after` only the one on its side is counted."""
    session = _session(session_id)
    if side == "before":
        return _window_before(session, place.before())
    turns = list(_turns(session).filter(place.after()).order_by("index", "at", "pk")[:WINDOW])
    return Window(turns=views_of(turns), num_before=0, num_after=_number_after(session, turns))


def session_signals(session_id: str) -> tuple[list[UserSignal], int]:
    """(the newest about the whole session, oldest first; how many older ones are left out)."""
    found = UserSignal.objects.filter(session_ref=session_id)
    newest = list(found.order_by("-at", "-id")[: MAX_SESSION_SIGNALS + 1])
    num_hidden = found.count() - MAX_SESSION_SIGNALS if len(newest) > MAX_SESSION_SIGNALS else 0
    return newest[:MAX_SESSION_SIGNALS][::-1], num_hidden


def _session(session_id: str) -> AgentSession:
    session = AgentSession.objects.filter(session_id=session_id).first()
    if session is None:
        raise NotFound(f"no session {session_id!r}")
    return session


def _newest(session: AgentSession) -> Window:
    return _window_before(session, Q())


def _around(session: AgentSession, sought: str) -> Window:
    turn = Turn.objects.filter(session=session, turn_id=sought).first()
    if turn is None:
        raise NotFound(f"no turn {sought!r} in this session")
    after = _turns(session).filter(Place.of(turn).after()).order_by("index", "at", "pk")[:AFTER_SOUGHT]
    last = Place.of(list(after)[-1] if after else turn)
    found = _window_before(session, last.before() | Q(pk=last.key))
    return Window(
        turns=found.turns,
        num_before=found.num_before,
        num_after=_turns(session).filter(last.after()).count(),
    )


def _window_before(session: AgentSession, condition: Q) -> Window:
    turns = list(_turns(session).filter(condition).order_by("-index", "-at", "-pk")[:WINDOW])[::-1]
    num_before = _turns(session).filter(Place.of(turns[0]).before()).count() if len(turns) == WINDOW else 0
    return Window(turns=views_of(turns), num_before=num_before, num_after=0)


def _number_after(session: AgentSession, turns: Sequence[Turn]) -> int:
    if len(turns) < WINDOW:
        return 0
    return _turns(session).filter(Place.of(turns[-1]).after()).count()


def _turns(session: AgentSession) -> QuerySet[Turn]:
    return Turn.objects.filter(session=session).select_related("label", "session")
