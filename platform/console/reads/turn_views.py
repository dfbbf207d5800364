"""Everything that pages show about some turns: what was said, heard, measured and learned. Queries do not grow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Count

from console.reads.tool_calls import ToolCall, tool_calls
from console.reads.transcript import Said, told_apart
from evals.models import Score
from feedback.labels import Heard, Recipe, Verdict, current, verdict_of
from feedback.models import Flag, LabelRecipe, Turn, TurnPayload, UserSignal
from rl_online.models import BatchSample, UpdateRun

MAX_SIGNALS = 2000  # of all these turns, the newest
TEXTS = ("project_id", "turn_id", "at", "messages", "prompt", "completion", "tool_calls", "metadata")
SILENT_SAYS = ("ignore", "abandon")


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalView:
    """One signal and what it says of the label."""

    signal: UserSignal
    is_superseded: bool  # a later one of the same person stands for it
    says: Verdict | None  # alone; None: it has no say in the outcome
    decides: bool  # it is the one that the label's outcome comes from


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """One batch that a turn was a sample of, and what came of it."""

    sample: BatchSample
    updates: list[UpdateRun]

    @property
    def advantage(self) -> float:
        return self.sample.reward - self.sample.baseline


@dataclass(slots=True)
class TurnView:
    turn: Turn
    payload: TurnPayload | None  # None: the large part is gone (redacted or past its time)
    said: list[Said] = field(default_factory=list)  # messages that were not shown with an earlier turn
    num_repeated: int = 0  # messages of the prompt that were
    num_left_out: int = 0  # older messages of a very long prompt
    signals: list[SignalView] = field(default_factory=list)
    num_signals_hidden: int = 0  # older ones that the page leaves out
    scores: list[Score] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    learned: list[Learned] = field(default_factory=list)
    num_labels: int = 0

    @property
    def num_earlier_labels(self) -> int:
        return max(0, self.num_labels - 1)

    @property
    def calls(self) -> list[ToolCall]:
        return tool_calls(self.payload.tool_calls) if self.payload else []

    @property
    def edits(self) -> list[UserSignal]:
        heard = [view.signal for view in self.signals]
        return [signal for signal in heard if signal.kind in ("edit", "correction") and signal.text is not None]


def views_of(turns: Sequence[Turn]) -> list[TurnView]:
    """In the order given; each turn comes with its `label` and `session` selected."""
    if not turns:
        return []
    payloads = _payloads(turns)
    views = {
        exchange.turn.pk: TurnView(
            turn=exchange.turn,
            payload=exchange.payload,
            said=exchange.said,
            num_repeated=exchange.num_repeated,
            num_left_out=exchange.num_left_out,
        )
        for exchange in told_apart(turns, payloads)
    }
    by_name = {view.turn.turn_id: view for view in views.values()}
    _add_signals(views)
    for turn_id, number in Turn.objects.filter(pk__in=views).values_list("id").annotate(n=Count("labels")):
        views[turn_id].num_labels = number
    for score in Score.objects.filter(turn_ref__in=by_name).order_by("scorer", "scorer_version"):
        by_name[score.turn_ref].scores.append(score)
    for flag in Flag.objects.filter(turn__in=views).order_by("created_at"):
        views[flag.turn_id].flags.append(flag)
    _add_learned(by_name)
    return list(views.values())


def _payloads(turns: Sequence[Turn]) -> dict[str, TurnPayload]:
    times = [turn.at for turn in turns]
    # Bounding `at` lets PostgreSQL skip every other month's partition.
    rows = TurnPayload.objects.filter(
        project_id=turns[0].project_id,
        turn_id__in=[turn.turn_id for turn in turns],
        at__range=(min(times), max(times)),
    )
    return {row.turn_id: row for row in rows.only(*TEXTS)}


def _add_signals(views: Mapping[int, TurnView]) -> None:
    found = UserSignal.objects.filter(turn__in=views)
    newest = list(found.order_by("-at", "-id")[: MAX_SIGNALS + 1])
    totals = dict(found.values_list("turn_id").annotate(n=Count("id"))) if len(newest) > MAX_SIGNALS else {}
    heard: dict[int, list[UserSignal]] = {}
    for signal in newest[:MAX_SIGNALS][::-1]:
        heard.setdefault(signal.turn_id or 0, []).append(signal)
    versions = {view.turn.label.recipe_version for view in views.values() if view.turn.label}
    recipes = {row.version: Recipe(**row.body) for row in LabelRecipe.objects.filter(version__in=versions)}
    for key, signals in heard.items():
        view = views[key]
        label = view.turn.label
        view.signals = explain(view.turn, signals, recipes.get(label.recipe_version, Recipe()) if label else Recipe())
    for key, number in totals.items():
        views[key].num_signals_hidden = number - len(views[key].signals)


def explain(turn: Turn, signals: Sequence[UserSignal], recipe: Recipe) -> list[SignalView]:
    """Which signals count, what each says, and which one decides, by the recipe that made the label."""
    by_name = {signal.signal_id: signal for signal in signals}
    counted, gone = current([_heard(signal) for signal in signals])
    says = {signal.id: verdict_of(signal, at=turn.at, recipe=recipe) for signal in counted}
    decisive = [signal.id for signal in counted if says[signal.id]]
    if not decisive:
        decisive = [signal.id for signal in counted if signal.kind in SILENT_SAYS]
    superseded = {signal.id for signal in gone}
    return [
        SignalView(
            signal=signal,
            is_superseded=name in superseded,
            says=says.get(name),
            decides=bool(decisive) and name == decisive[-1],
        )
        for name, signal in by_name.items()
    ]


def _heard(signal: UserSignal) -> Heard:
    return Heard(
        id=signal.signal_id,
        kind=signal.kind,
        at=signal.at,
        value=signal.value,
        user=signal.user,
        supersedes=signal.supersedes,
    )


def _add_learned(views: Mapping[str, TurnView]) -> None:
    samples = list(
        BatchSample.objects.filter(turn_ref__in=views)
        .select_related("batch__policy", "batch__reward_spec")
        .order_by("id")
    )
    updates: dict[object, list[UpdateRun]] = {}
    runs = UpdateRun.objects.filter(batch__in={sample.batch_id for sample in samples})
    for run in runs.select_related("policy", "checkpoint__policy").order_by("created_at"):
        updates.setdefault(run.batch_id, []).append(run)
    for sample in samples:
        views[sample.turn_ref].learned.append(Learned(sample=sample, updates=updates.get(sample.batch_id, [])))
