"""Sessions: the filtered list, and one session with everything that was said, done, measured and learned."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from evals.models import Score
from feedback.models import AgentSession, Flag, FlagState, Outcome, Turn, TurnPayload, UserSignal
from registry.errors import NotFound
from registry.services import parse_checkpoint_name
from rl_online.models import BatchSample, UpdateRun

PAGE = 40
MAX_TURNS = 200  # of one session on one page, the newest
SOURCES = ("production", "import", "simulated", "eval", "judge", "playground")


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """What the address asks for; empty is everything."""

    user: str = ""
    surface: str = ""
    checkpoint: str = ""  # <policy>@<version>, or the name of an external model
    outcome: str = ""  # an Outcome, or "unsettled"
    source: str = ""
    flagged: str = ""  # open | any

    @classmethod
    def of(cls, query: Any) -> "Filters":
        return cls(**{name: query.get(name, "").replace("\x00", "").strip() for name in cls.__slots__})

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, name) for name in self.__slots__)


@dataclass(slots=True)
class SessionRow:
    session: AgentSession
    outcomes: dict[str, int] = field(default_factory=dict)  # outcome or "unsettled" -> turns
    origins: list[str] = field(default_factory=list)  # checkpoints and models that answered
    num_flags: int = 0


def page_of_sessions(filters: Filters, number: str | None) -> tuple[Page, list[SessionRow]]:
    page = Paginator(_matching(filters).order_by("-last_at", "-id"), PAGE).get_page(number)
    rows = {session.pk: SessionRow(session) for session in page}
    turns = Turn.objects.filter(session_id__in=list(rows))
    by_kind = turns.values_list("session_id", "policy", "version", "model", "outcome").annotate(n=Count("id"))
    for session_id, policy, version, model, outcome, n in by_kind.order_by("session_id", "version"):
        row = rows[session_id]
        row.outcomes[outcome or "unsettled"] = row.outcomes.get(outcome or "unsettled", 0) + n
        origin = model if version is None else f"{policy}@{version}"
        if origin and origin not in row.origins:
            row.origins.append(origin)
    flags = Flag.objects.filter(turn__session_id__in=list(rows), state=FlagState.OPEN).values_list("turn__session_id")
    for session_id, n in flags.annotate(n=Count("id")):
        rows[session_id].num_flags = n
    return page, list(rows.values())


def _matching(filters: Filters) -> QuerySet[AgentSession]:
    sessions = AgentSession.objects.all()
    if filters.user:
        sessions = sessions.filter(user=filters.user)
    if filters.surface:
        sessions = sessions.filter(surface=filters.surface)
    turns = Turn.objects.filter(session=OuterRef("pk"))
    narrowed = turns
    if filters.checkpoint:
        narrowed = narrowed.filter(_answered_by(filters.checkpoint))
    if filters.outcome == "unsettled":
        narrowed = narrowed.filter(settled_at__isnull=True)
    elif filters.outcome:
        narrowed = narrowed.filter(outcome=filters.outcome)
    if filters.source:
        narrowed = narrowed.filter(source=filters.source)
    if filters.flagged:
        flags = Flag.objects.filter(turn=OuterRef("pk"))
        narrowed = narrowed.filter(Exists(flags.filter(state=FlagState.OPEN) if filters.flagged == "open" else flags))
    return sessions if narrowed is turns else sessions.filter(Exists(narrowed))


def _answered_by(name: str) -> Q:
    policy, at, version = name.rpartition("@")
    if at and version.isascii() and version.isdigit() and len(version) < 10:
        policy, number = parse_checkpoint_name(name)
        return Q(policy=policy, version=number)
    return Q(model=name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What the filters offer."""

    surfaces: list[str]
    checkpoints: list[str]


def choices() -> Choices:
    surfaces = AgentSession.objects.exclude(surface=None).values_list("surface", flat=True).distinct()
    versions = Turn.objects.filter(version__isnull=False).values_list("policy", "version").distinct()
    models = Turn.objects.exclude(model=None).values_list("model", flat=True).distinct().order_by("model")[:50]
    own = [f"{policy}@{version}" for policy, version in versions.order_by("policy", "-version")[:100]]
    return Choices(surfaces=list(surfaces.order_by("surface")[:50]), checkpoints=own + list(models))


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """One batch that this turn was a sample of, and what came of it."""

    sample: BatchSample
    updates: list[UpdateRun]

    @property
    def advantage(self) -> float:
        return self.sample.reward - self.sample.baseline


@dataclass(slots=True)
class TurnView:
    turn: Turn
    payload: TurnPayload | None  # None: the large part is gone (redacted or past its time)
    said: list[dict[str, str]] = field(default_factory=list)  # messages that were not shown with an earlier turn
    num_repeated: int = 0  # messages of the prompt that were
    signals: list[UserSignal] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    learned: list[Learned] = field(default_factory=list)
    num_earlier_labels: int = 0

    @property
    def edits(self) -> list[UserSignal]:
        return [signal for signal in self.signals if signal.kind in ("edit", "correction") and signal.text is not None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionView:
    session: AgentSession
    turns: list[TurnView]
    signals: list[UserSignal]  # about the whole session
    num_hidden: int  # older turns that the page leaves out


def find_session(session_id: str) -> SessionView:
    """Raises NotFound."""
    session = AgentSession.objects.filter(session_id=session_id).first()
    if session is None:
        raise NotFound(f"no session {session_id!r}")
    newest = Turn.objects.filter(session=session).select_related("label").annotate(num_labels=Count("labels"))
    turns = list(newest.order_by("-index", "-at", "-id")[:MAX_TURNS])[::-1]
    views = _views(turns)
    return SessionView(
        session=session,
        turns=views,
        signals=list(UserSignal.objects.filter(session_ref=session_id).order_by("at", "id")),
        num_hidden=max(0, session.num_turns - len(turns)),
    )


def _views(turns: Sequence[Turn]) -> list[TurnView]:
    names = [turn.turn_id for turn in turns]
    views = {turn.turn_id: TurnView(turn=turn, payload=None) for turn in turns}
    if not turns:
        return []
    ends = (min(turn.at for turn in turns), max(turn.at for turn in turns))
    project = turns[0].project_id
    # Bounding `at` lets PostgreSQL skip every other month's partition.
    for payload in TurnPayload.objects.filter(project_id=project, turn_id__in=names, at__range=ends):
        views[payload.turn_id].payload = payload
    for signal in UserSignal.objects.filter(turn__in=turns).order_by("at", "id").annotate(of=F("turn__turn_id")):
        views[signal.of].signals.append(signal)
    for score in Score.objects.filter(turn_ref__in=names).order_by("scorer", "scorer_version"):
        views[score.turn_ref].scores.append(score)
    for flag in Flag.objects.filter(turn__in=turns).order_by("created_at").annotate(of=F("turn__turn_id")):
        views[flag.of].flags.append(flag)
    samples = list(BatchSample.objects.filter(turn_ref__in=names).select_related("batch__policy").order_by("id"))
    updates: dict[object, list[UpdateRun]] = {}
    runs = UpdateRun.objects.filter(batch__in={sample.batch_id for sample in samples})
    for run in runs.select_related("policy", "checkpoint__policy").order_by("created_at"):
        updates.setdefault(run.batch_id, []).append(run)
    for sample in samples:
        views[sample.turn_ref].learned.append(Learned(sample=sample, updates=updates.get(sample.batch_id, [])))
    _tell_apart(list(views.values()))
    return list(views.values())


def _tell_apart(views: list[TurnView]) -> None:
    """A chat repeats its past in every prompt: keep of each prompt what the turn before did not show already."""
    shown: list[dict[str, Any]] = []
    for view in views:
        view.num_earlier_labels = max(0, view.turn.num_labels - 1)
        if view.payload is None:
            continue
        messages = view.payload.messages or []
        view.num_repeated = len(shown) if shown and messages[: len(shown)] == shown else 0
        view.said = [_said(message) for message in messages[view.num_repeated :]]
        if view.payload.prompt is not None:
            view.said = [{"role": "prompt", "text": view.payload.prompt}]
        shown = [*messages, {"role": "assistant", "content": view.payload.completion}]


def _said(message: Any) -> dict[str, str]:
    """A message as role and text; parts of other kinds are named, not shown."""
    if not isinstance(message, dict):
        return {"role": "unknown", "text": str(message)}
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(
            str(part.get("text", f"[{part.get('type', 'part')}]")) if isinstance(part, dict) else str(part)
            for part in content
        )
    return {"role": str(message.get("role", "unknown")), "text": "" if content is None else str(content)}


OUTCOMES = [*Outcome.values, "unsettled"]
