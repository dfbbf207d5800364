"""Which settled turns a policy could learn from now, and why the others are left out. Inside a tenant; reads only.

A turn is looked at until it is in a batch; what is left out is counted by its reason. Corrections are turns whose label
or reviewer's override changed after their batch had been trained: the difference is learnt, once, while the original is
on the serving line.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from evals.judge_trust import paused_scorers
from evals.models import Score, ScoreStatus
from evals.services.panels import PREFIX as PANEL
from evals.services.panels import panel_marks
from feedback.models import Outcome, Turn, TurnPayload
from registry.models import Checkpoint, Policy
from registry.services import lineage
from registry.tenancy import current_project_id
from rl_online.models import OPEN_STATES, BatchSample, RewardBatch, UpdateKind, UpdateRun, UpdateState
from rl_online.rewards.composite import Reward, RewardSpec, reward_of

RL, KTO = "rl", "kto"
LIVE_SOURCES = ("production", "simulated")
KTO_SOURCES = (*LIVE_SOURCES, "import")
FINISHED = ("stop", "length", "tool_calls")  # an answer cut off by a fault or a leaving client was nobody's choice
RECENT_BATCHES = 4  # beyond the lag, so that a turn or a correction that comes too late is still seen and counted
SPARE = 32  # turns looked at beyond those that are missing
PENALTIES = ("presence_penalty", "frequency_penalty")


@dataclass(frozen=True, kw_only=True)
class Line:
    """The serving checkpoint and its ancestors, newest first."""

    policy: Policy
    checkpoints: list[Checkpoint]

    @property
    def serving(self) -> Checkpoint:
        return self.checkpoints[0]

    def lag_of(self, version: int | None) -> int | None:
        """Updates between `version` and the serving checkpoint; None when it is not on the line."""
        return None if version is None else self._lags.get(version)

    @cached_property
    def _lags(self) -> dict[int, int]:
        return {checkpoint.version: lag for lag, checkpoint in enumerate(self.checkpoints)}


@dataclass(frozen=True, slots=True)
class Look:
    """What decides about a turn, and what an estimate needs: its columns by the names of Turn, and no others.

    Pages ask about a thousand turns at once, and a Turn costs ten times as much to make.
    """

    pk: int
    turn_id: str
    at: datetime
    settled_at: datetime | None
    policy: str | None
    version: int | None
    model: str | None
    source: str
    error: str | None
    finish_reason: str | None
    sampling: dict[str, Any] | None
    has_logprobs: bool
    outcome: str | None
    label_id: int | None
    reward_override: float | None
    reward_revision: int
    is_excluded: bool
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None

    @property
    def checkpoint(self) -> str | None:
        return None if self.version is None else f"{self.policy}@{self.version}"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A turn with what it earned."""

    turn: Turn | Look
    kind: str  # rl | kto
    reward: float
    breakdown: dict[str, Any]  # shared by turns that earned it alike
    is_correction: bool = False


@dataclass(frozen=True, kw_only=True)
class Whole(Candidate):
    """A candidate with all columns of its turn, and with the turn's label and session."""

    turn: Turn


@dataclass(frozen=True, kw_only=True)
class Collected:
    candidates: list[Candidate]  # in the order in which the turns happened
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> number of turns left out
    oldest_at: datetime | None = None  # when the first of them settled


def line_of(policy: Policy, serving: Checkpoint) -> Line:
    return Line(policy=policy, checkpoints=lineage(serving))


def collect(line: Line, spec: RewardSpec, *, kind: str, max_lag: int, max_turns: int) -> Collected:
    """The newest `max_turns` turns that can teach, and what was left out on the way to them.

    Pages ask this all the time, so no more turns are looked at than four times as many.
    """
    newest = _unspent(line, kind, max_lag).order_by("-settled_at", "-turn_id")
    columns = [one.name for one in fields(Look)]
    found: list[Candidate] = []
    dropped: Counter[str] = Counter()
    rewards: dict[tuple[object, ...], Reward] = {}  # by what they rest on
    num_seen, most = 0, 4 * max_turns
    while num_seen < most and (missing := max_turns - len(found)):
        size = min(most - num_seen, missing + max(SPARE, missing // 8))  # few are left out as a rule
        turns = [Look(*row) for row in newest.values_list(*columns)[num_seen : num_seen + size]]
        scores = scores_of([turn.turn_id for turn in turns])
        for turn in turns:
            reason = fault_of(turn, line, kind=kind, max_lag=max_lag)
            scored = scores.get(turn.turn_id, {})
            rests_on = (turn.outcome, turn.reward_override, *scored.items())
            reward = rewards.get(rests_on) or rewards.setdefault(rests_on, rewarded(turn, spec, scored))
            if reason is None and reward.value is None:
                reason = "unknown reward"
            if reason is not None:
                dropped[reason] += 1
                continue
            assert reward.value is not None
            found.append(Candidate(turn=turn, kind=kind, reward=reward.value, breakdown=reward.breakdown))
            if len(found) == max_turns:
                break
        if len(turns) < size:
            break
        num_seen += size
    found.sort(key=lambda one: (one.turn.at, one.turn.turn_id))
    settled = [one.turn.settled_at for one in found if one.turn.settled_at]
    return Collected(candidates=found, dropped=dict(dropped), oldest_at=min(settled, default=None))


def num_unspent(line: Line, *, max_lag: int, at_most: int) -> int:
    """Settled turns of the line's recent versions that no batch has taken, counted up to `at_most`.

    Never fewer than `collect` would find for RL, and counted without reading one of them.
    """
    versions = [checkpoint.version for checkpoint in line.checkpoints[: max_lag + 1]]
    return _unspent(line, RL, max_lag).filter(version__in=versions).order_by().values("pk")[:at_most].count()


def whole(candidates: Sequence[Candidate]) -> list[Whole]:
    """The same candidates with all columns of their turns, labels and sessions, in one query.

    One whose label, override or exclusion changed since it was looked at is left out: its reward is of the old one.
    """
    turns = _with_labels(Turn.objects.all()).in_bulk([one.turn.pk for one in candidates])
    found = ((one, turns.get(one.turn.pk)) for one in candidates)
    return [
        Whole(turn=turn, kind=one.kind, reward=one.reward, breakdown=one.breakdown, is_correction=one.is_correction)
        for one, turn in found
        if turn is not None and _word(turn) == _word(one.turn)
    ]


def _word(turn: Turn | Look) -> tuple[object, ...]:
    """What its reward rests on."""
    return turn.label_id, turn.reward_revision, turn.is_excluded


def fault_of(turn: Turn | Look, line: Line, *, kind: str, max_lag: int) -> str | None:
    """Why this settled turn must not be learnt from in a batch of this kind; None when it may."""
    if reason := text_fault(turn):
        return reason
    if kind == KTO:
        return _kto_fault(turn, line)
    lag = line.lag_of(turn.version)
    if lag is None:
        return "abandoned branch"
    if lag > max_lag:
        return "too old"
    return None if is_complete(turn) else "incomplete"


def of_text(line: Line) -> Q:
    """Turns whose text alone may be learnt from: the policy's own, and imported ones, also of other models."""
    is_import = Q(source="import") & (Q(model__isnull=False) | Q(policy=line.policy.name))
    return Q(policy=line.policy.name, source__in=LIVE_SOURCES) | is_import


def text_fault(turn: Turn | Look) -> str | None:
    """Why the text of a turn must not be learnt from, by whatever loss; None when it may."""
    if turn.is_excluded:
        return "excluded by a reviewer"
    if turn.policy is None and turn.model is None:
        return "unknown origin"
    if turn.source in LIVE_SOURCES and (turn.error or turn.finish_reason not in FINISHED):
        return "cut off"
    return None


def is_complete(turn: Turn | Look) -> bool:
    """Whether a ratio loss may take it: ids, logprobs and versions, sampled from the whole distribution."""
    sampling = turn.sampling or {}
    return bool(
        turn.has_logprobs
        and (sampling.get("temperature") or 0) > 0
        and sampling.get("top_p", 1) == 1
        and not sampling.get("top_k")
        and not any(sampling.get(name) for name in PENALTIES)
        and sampling.get("logprobs_mode") == "processed"
    )


def rewarded(turn: Turn | Look, spec: RewardSpec, scores: Mapping[str, float | None]) -> Reward:
    """What the turn earned; a reviewer's word beats the recipe."""
    reward = reward_of(spec, outcome=turn.outcome or Outcome.UNKNOWN, scores=scores)
    if turn.reward_override is None:
        return reward
    return Reward(value=turn.reward_override, breakdown={**reward.breakdown, "override": turn.reward_override})


def corrections(line: Line, spec: RewardSpec, *, max_lag: int) -> Collected:
    """Turns learnt on the serving line whose label or override is another by now: each with new reward minus old.

    Labels are told apart by id, overrides by their revision: one written while its turn was being sealed is a
    correction of that batch.
    """
    batches = _batches_to_correct(line, newest=max_lag + RECENT_BATCHES)
    turns = list(_with_labels(Turn.objects.filter(pk__in=_changed_since(batches))))
    learnt: dict[str, list[BatchSample]] = {}
    sealed = BatchSample.objects.filter(turn_ref__in=[turn.turn_id for turn in turns], kind=UpdateKind.ONLINE)
    for sample in sealed.order_by("id"):
        learnt.setdefault(sample.turn_ref, []).append(sample)
    on_line = _batches_behind(line)
    scores = scores_of([turn.turn_id for turn in turns])
    found: list[Candidate] = []
    dropped: Counter[str] = Counter()
    for turn in turns:
        samples = [one for one in learnt[turn.turn_id] if one.batch_id in on_line and not one.is_heldout]
        reward = rewarded(turn, spec, scores.get(turn.turn_id, {}))
        lag = line.lag_of(turn.version)
        if any(one.is_heldout for one in learnt[turn.turn_id]):
            dropped["correction of what was only measured"] += 1
        elif all(sample.is_correction for sample in samples):
            dropped["correction of what the serving line did not learn"] += 1
        elif lag is None or lag > max_lag:
            dropped["correction too old"] += 1
        elif turn.is_excluded or not is_complete(turn) or reward.value is None:
            dropped["correction without a reward"] += 1
        elif change := round(reward.value - math.fsum(sample.reward for sample in samples), 9):
            found.append(Candidate(turn=turn, kind=RL, reward=change, breakdown=reward.breakdown, is_correction=True))
    if lost := len(_lost_corrections(batches, on_line)):
        dropped["correction spent on a candidate that does not serve"] += lost
    return Collected(candidates=sorted(found, key=lambda one: (one.turn.at, one.turn.turn_id)), dropped=dict(dropped))


def _lost_corrections(batches: Collection[UUID], on_line: Collection[UUID]) -> set[str]:
    """Turns learnt on the line whose label and override of now were taught in these batches to other checkpoints only.

    A batch is trained once, so nothing is sent again; one that may still come to serve is not lost.
    """
    taught = BatchSample.objects.filter(is_correction=True, batch_id__in=set(batches) - set(on_line))
    spent = taught.exclude(batch__updates__state__in=[*OPEN_STATES, UpdateState.WAITING])
    words = {(turn, label, word) for turn, label, word in spent.values_list("turn_ref", "label_id", "reward_revision")}
    if not words:
        return set()
    turns = Turn.objects.filter(turn_id__in={turn for turn, *_ in words})
    now = set(turns.values_list("turn_id", "label_id", "reward_revision")) & words
    learnt = BatchSample.objects.filter(
        turn_ref__in={turn for turn, *_ in now},
        batch_id__in=on_line,
        kind=UpdateKind.ONLINE,
        is_correction=False,
        is_heldout=False,
    )
    return set(learnt.values_list("turn_ref", flat=True))


def _changed_since(batches: Collection[UUID]) -> list[int]:
    """Keys of turns in these batches of which no batch knows the label and override that they have now.

    From the few samples to their turns, one by one (LIMIT keeps it so): in one join, every settled turn would be read.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT DISTINCT turn.id FROM rl_online_batchsample sample
            CROSS JOIN LATERAL (
              SELECT id, label_id, reward_revision FROM feedback_turn
              WHERE project_id = %(project)s AND turn_id = sample.turn_ref LIMIT 1) turn
            WHERE sample.project_id = %(project)s AND sample.batch_id = ANY(%(batches)s) AND turn.label_id IS NOT NULL
              AND (sample.label_id, sample.reward_revision) IS DISTINCT FROM (turn.label_id, turn.reward_revision)
              AND NOT EXISTS (
                SELECT FROM rl_online_batchsample known
                WHERE known.project_id = sample.project_id AND known.turn_ref = sample.turn_ref
                  AND known.kind = sample.kind
                  AND known.label_id = turn.label_id AND known.reward_revision = turn.reward_revision)
            """,
            {"project": current_project_id(), "batches": list(batches)},
        )
        return [key for (key,) in cursor.fetchall()]


def _batches_to_correct(line: Line, *, newest: int) -> set[UUID]:
    """The batches of the line's `newest` checkpoints, and the `newest` rl batches whatever became of them."""
    on_line = UpdateRun.objects.filter(checkpoint__in=line.checkpoints[:newest], batch__kind=RL)
    sealed = RewardBatch.objects.filter(policy=line.policy, kind=RL).order_by("-created_at")[:newest]
    return {*on_line.values_list("batch_id", flat=True), *sealed.values_list("id", flat=True)}


def _batches_behind(line: Line) -> set[UUID]:
    """Batches that a checkpoint of the line was trained on."""
    updates = UpdateRun.objects.filter(checkpoint__in=line.checkpoints)
    return set(updates.values_list("batch_id", flat=True))


def scores_of(turn_ids: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """turn -> scorer -> value; only what was scored, and by no judge that is paused, alone or on a panel."""
    found: dict[str, dict[str, float | None]] = {}
    kept = Q(status=ScoreStatus.SCORED) | Q(scorer__startswith=PANEL)
    scored = Score.objects.filter(kept, turn_ref__in=turn_ids).order_by("id")
    rows = list(scored.values_list("turn_ref", "scorer", "scorer_version", "value"))
    paused = paused_scorers() if any(scorer.startswith("judge:") for _, scorer, _, _ in rows) else set()
    spoken = list(dict.fromkeys(turn_id for turn_id, scorer, _, _ in rows if scorer.startswith(PANEL)))
    for turn_id, scorer, version, value in rows:
        if not scorer.startswith(PANEL) and (scorer, version) not in paused:
            found.setdefault(turn_id, {})[scorer] = value
    for turn_id, marks in panel_marks(spoken).items() if spoken else ():
        found.setdefault(turn_id, {}).update(marks)
    return found


def payloads_of(turns: Sequence[Turn]) -> dict[str, TurnPayload]:
    """The large part of each turn, read by partition key."""
    if not turns:
        return {}
    times = {turn.at for turn in turns}
    rows = TurnPayload.objects.filter(
        project_id=current_project_id(),
        turn_id__in=[turn.turn_id for turn in turns],
        at__gte=min(times),
        at__lte=max(times),
    )
    return {row.turn_id: row for row in rows}


def slice_of(turn: Turn, payload: TurnPayload) -> str:
    """Turns that are expected to earn alike: surface, language and the product's own `metadata.slice`."""
    parts = [turn.surface, turn.language, payload.metadata.get("slice")]
    return "|".join(str(part) for part in parts if part)


def num_tokens_of(turn: Turn | Look) -> int | None:
    """Of prompt and answer; None where nobody counted them."""
    if turn.input_tokens is None or turn.output_tokens is None:
        return None
    return turn.input_tokens + (turn.cache_read_tokens or 0) + (turn.cache_write_tokens or 0) + turn.output_tokens


def user_hash(project_id: UUID, user: str | None) -> str | None:
    return None if user is None else hashlib.sha256(f"{project_id}:{user}".encode()).hexdigest()


def _unspent(line: Line, kind: str, max_lag: int) -> QuerySet[Turn]:
    """Settled turns that no batch of the online kind has taken.

    Where every turn is learnt from, the next one to look at lies beyond all that ever were. So for RL none is looked at
    that had settled before the line's checkpoints of now: what these answered settled after they were made.
    """
    spent = BatchSample.objects.filter(turn_ref=OuterRef("turn_id"), kind=UpdateKind.ONLINE, is_correction=False)
    turns = Turn.objects.filter(~Exists(spent), settled_at__isnull=False, label__isnull=False)
    if kind == KTO:
        return turns.filter(of_text(line))
    turns = turns.filter(policy=line.policy.name, source__in=LIVE_SOURCES)
    recent = line.checkpoints[: max_lag + RECENT_BATCHES + 1]
    return turns if len(recent) == len(line.checkpoints) else turns.filter(settled_at__gte=recent[-1].created_at)


def _with_labels(turns: QuerySet[Turn]) -> QuerySet[Turn]:
    return turns.select_related("label", "session")


def _kto_fault(turn: Turn | Look, line: Line) -> str | None:
    if turn.outcome not in (Outcome.ACCEPT, Outcome.REJECT, Outcome.SILENCE) and turn.reward_override is None:
        return "unknown reward"
    if turn.source in LIVE_SOURCES and line.lag_of(turn.version) is None:
        return "abandoned branch"
    if turn.source in LIVE_SOURCES and is_complete(turn):
        return "complete"  # the ratio loss is the better use of it
    return None
