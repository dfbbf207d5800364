"""One turn and its whole way: what was heard, how it was labelled and paid, what learned from it, what that served."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db.models import Q

from console.reads.prices import said
from console.reads.session import Place, session_signals
from console.reads.turn_views import Learned, TurnView, views_of
from evals.services.drafts import open_drafts
from feedback.models import FlagState, Label, Turn, UserSignal
from registry.errors import NotFound
from registry.models import AuditEvent, Deployment, PriceCard
from registry.price_cards import OWN_HARDWARE, card_at, cards_at, prices_of_card, rates_of
from registry.pricing import Usage, cost_of_device, cost_of_request
from rl_online.collecting import RL, fault_of, line_of, rewarded, scores_of
from rl_online.models import LearningPlan, RewardSpec, UpdateMetric
from rl_online.rewards.batch import CorruptBatch, Sample, read_sample
from rl_online.rewards.composite import parse_reward_spec
from rl_online.services.plans import effective_config

MAX_LABELS = 20
MAX_MOVES = 200
NOT_COMPONENTS = ("gate", "override")


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One named ingredient of a reward."""

    name: str
    value: float | None  # before weighting; None: unknown
    weight: float | None
    part: float | None  # what it adds
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Paid:
    """A reward with its ingredients."""

    spec: str  # name and version
    value: float | None  # None: unknown, the turn is left out
    components: list[Component]
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Whether the next batch may take the turn."""

    paid: Paid | None  # by the spec the policy learns by now; None: not labelled, or no plan
    fault: str | None  # why it would be left out; None: it may be taken


@dataclass(frozen=True, kw_only=True, slots=True)
class Sealed:
    """The turn as one batch holds it."""

    learned: Learned
    paid: Paid | None  # as it was sealed; None: the batch's file is not here
    sample: Sample | None
    problem: str  # why the file could not be read
    logp_gaps: dict[Any, float]  # update -> mean of engine's minus trainer's log-probability at the first step

    @property
    def num_trained(self) -> int | None:
        return None if self.sample is None else sum(self.sample.mask)

    @property
    def gaps(self) -> list[tuple[Any, float | None]]:
        return [(run, self.logp_gaps.get(run.pk)) for run in self.learned.updates]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A time during which an alias pointed to a checkpoint that learned from the turn."""

    checkpoint: str
    since: datetime
    until: datetime | None  # None: it serves now


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    usd: Decimal | None  # None: unpriced
    words: str  # what it was counted from, or why there is no price


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnPage:
    view: TurnView
    previous: Turn | None  # in its session
    next: Turn | None
    session_signals: list[UserSignal]
    num_session_signals_hidden: int
    labels: list[Label]  # newest first
    standing: Standing
    sealed: list[Sealed]
    served: list[Served]
    serving_descends: list[str]  # checkpoints that serve now and come after one that learned from the turn
    cost: Cost
    open_flag: int | None  # its oldest
    drafts: list[str]  # benchmarks that problems are collected for


def find_turn(turn_id: str) -> TurnPage:
    """Raises NotFound."""
    turn = turn_of(turn_id)
    (view,) = views_of([turn])
    names = [str(run.checkpoint) for learned in view.learned for run in learned.updates if run.checkpoint]
    signals, num_hidden = session_signals(turn.session.session_id)
    siblings = Turn.objects.filter(session=turn.session_id)
    place = Place.of(turn)
    return TurnPage(
        view=view,
        previous=siblings.filter(place.before()).order_by("-index", "-at", "-pk").first(),
        next=siblings.filter(place.after()).order_by("index", "at", "pk").first(),
        session_signals=signals,
        num_session_signals_hidden=num_hidden,
        labels=list(Label.objects.filter(turn=turn).order_by("-id")[:MAX_LABELS]),
        standing=_standing(turn),
        sealed=sealed_of(view.learned),
        served=served_times(names),
        serving_descends=_descendants(view.learned),
        cost=cost_of_turn(turn),
        open_flag=min((flag.pk for flag in view.flags if flag.state == FlagState.OPEN), default=None),
        drafts=[draft.name for draft in open_drafts()],
    )


def turn_of(turn_id: str) -> Turn:
    """Raises NotFound."""
    turn = Turn.objects.select_related("label", "session").filter(turn_id=turn_id).first()
    if turn is None:
        raise NotFound(f"no turn {turn_id!r}")
    return turn


def paid_of(spec: object, breakdown: Mapping[str, Any], *, value: float | None, reason: str = "") -> Paid:
    """Rows of a breakdown as `rewards.composite` writes it."""
    components = [
        Component(
            name=name,
            value=part.get("value"),
            weight=part.get("weight"),
            part=part.get("part"),
            note=str(part.get("outcome") or part.get("reason", "")),
        )
        for name, part in breakdown.items()
        if isinstance(part, dict) and name not in NOT_COMPONENTS
    ]
    gate = breakdown.get("gate")
    if not reason and isinstance(gate, dict):
        reason = f"gate: {gate.get('scorer')} is {gate.get('score'):g}, at least {gate.get('at_least'):g} is asked"
    if "override" in breakdown:
        reason = "a reviewer's reward stands in place of the recipe's"
    return Paid(spec=str(spec), value=value, components=components, reason=reason)


def sealed_of(learned: Sequence[Learned]) -> list[Sealed]:
    runs = [run.pk for one in learned for run in one.updates]
    first = UpdateMetric.objects.filter(run__in=runs, step=1).values_list("run_id", "values")
    gaps = {run: values["logp_gap"] for run, values in first if values.get("logp_gap") is not None}
    return [_sealed(one, gaps) for one in learned]


def served_times(names: Sequence[str]) -> list[Served]:
    """When these checkpoints served, oldest first, by the audit trail."""
    if not names:
        return []
    moves = AuditEvent.objects.filter(object_kind="checkpoint").filter(
        Q(after__serving__in=names) | Q(before__serving__in=names)
    )
    found: list[Served] = []
    since: dict[str, datetime] = {}
    for move in moves.order_by("at", "id")[:MAX_MOVES]:
        left, came = (str((side or {}).get("serving", "")) for side in (move.before, move.after))
        if left in since:
            found.append(Served(checkpoint=left, since=since.pop(left), until=move.at))
        if came in names:
            since[came] = move.at
    return found + [Served(checkpoint=name, since=at, until=None) for name, at in since.items()]


def cost_of_turn(turn: Turn) -> Cost:
    """By the price card that was valid when it was made; own weights by the time they held the device."""
    name = turn.model or turn.policy
    if name is None:
        return Cost(usd=None, words="unpriced: the origin is unknown")
    cards = list(cards_at(turn.at, name, OWN_HARDWARE))
    card = card_at(cards, name, turn.at)
    if card is not None and turn.input_tokens is not None and turn.output_tokens is not None:
        usd = cost_of_request(_usage(turn), prices_of_card(card), at=turn.at)
        if usd is not None:
            return Cost(usd=usd, words=_by(card, turn))
    if turn.version is None:
        return Cost(usd=None, words=f"unpriced: no price card of {name} was valid then" if card is None else "unpriced")
    hour = card_at(cards, OWN_HARDWARE, turn.at)
    price = rates_of(hour).device_hour_usd if hour else None
    if price is None or turn.latency_ms is None:
        return Cost(usd=None, words="unpriced: no price of a device hour was set then")
    return Cost(
        usd=cost_of_device(turn.latency_ms / 1000, price),
        words=f"at most: {turn.latency_ms:,.0f} ms of a device at {price:g} USD an hour, which others may have shared",
    )


def _by(card: PriceCard, turn: Turn) -> str:
    """Which prices made a turn's cost."""
    prices, usage = prices_of_card(card), _usage(turn)
    variant = next((v for v in prices.variants if v.covers(usage.prompt, at=turn.at, processing=None)), None)
    tier = f"; all of it at the price beyond {variant.above:,} prompt tokens" if variant and variant.above else ""
    hours = "; at the price of its hour of the day" if variant and variant.window else ""
    return f"its tokens by the {said(card)}{tier}{hours}"


def _usage(turn: Turn) -> Usage:
    return Usage(
        input=turn.input_tokens or 0,
        cache_read=turn.cache_read_tokens or 0,
        cache_write=turn.cache_write_tokens or 0,
        output=turn.output_tokens or 0,
        reasoning=min(turn.reasoning_tokens or 0, turn.output_tokens or 0),
    )


def _standing(turn: Turn) -> Standing:
    plan = LearningPlan.objects.select_related("reward_spec", "policy").filter(policy__name=turn.policy).first()
    if plan is None:
        return Standing(paid=None, fault="unknown origin" if turn.version is None else "no learning plan")
    if turn.label is None:
        return Standing(paid=None, fault="not settled")
    paid = _paid_now(turn, plan.reward_spec)
    serving = Deployment.objects.select_related("checkpoint").filter(policy=plan.policy, alias="default").first()
    if serving is None:
        return Standing(paid=paid, fault="its policy serves nothing")
    line = line_of(plan.policy, serving.checkpoint)
    fault = fault_of(turn, line, kind=RL, max_lag=effective_config(plan).max_lag)
    return Standing(paid=paid, fault=fault or ("unknown reward" if paid.value is None else None))


def _paid_now(turn: Turn, spec: RewardSpec) -> Paid:
    reward = rewarded(turn, parse_reward_spec(spec.body), scores_of([turn.turn_id]).get(turn.turn_id, {}))
    return paid_of(spec, reward.breakdown, value=reward.value, reason=reward.reason)


def _sealed(learned: Learned, gaps: Mapping[Any, float]) -> Sealed:
    batch = learned.sample.batch
    sample, problem = None, ""
    try:
        sample = read_sample(settings.HOME.batches / batch.digest, learned.sample.turn_ref)
        problem = "" if sample else "the batch no longer holds it; its person was deleted"
    except FileNotFoundError:
        problem = "the batch's file is not on this machine"
    except CorruptBatch as error:
        problem = str(error)
    paid = None
    if sample is not None:
        paid = paid_of(batch.reward_spec, sample.row.get("reward_breakdown", {}), value=sample.reward)
    return Sealed(learned=learned, paid=paid, sample=sample, problem=problem, logp_gaps=dict(gaps))


def _descendants(learned: Sequence[Learned]) -> list[str]:
    """What serves now and was made from a checkpoint that learned from the turn, itself apart."""
    policies = {one.sample.batch.policy_id for one in learned}
    taught = {run.checkpoint_id for one in learned for run in one.updates if run.checkpoint_id}
    if not taught:
        return []
    found = []
    for serving in Deployment.objects.select_related("policy", "checkpoint__policy").filter(
        policy__in=policies, alias="default"
    ):
        line = line_of(serving.policy, serving.checkpoint)
        if any(checkpoint.pk in taught for checkpoint in line.checkpoints[1:]):
            found.append(str(serving.checkpoint))
    return found
