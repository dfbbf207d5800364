"""From settled turns to a sealed batch and the UpdateRun that will learn from it.

`prepare` reads, asks the engine for ids where a turn came without, and writes the batch folder; `open_update` is the
transaction that makes it count. Killed in between, the folder is left behind, named by its content, and nothing else.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Max

from feedback.conduct import FACTS
from feedback.models import TurnPayload
from jobs.services import enqueue
from registry.errors import Conflict
from registry.models import Checkpoint, Deployment, Policy
from registry.services import audit, next_version
from rl_online import collecting
from rl_online.collecting import KTO, RL, Candidate, Line, Whole
from rl_online.models import OPEN_STATES, BatchSample, LearningPlan, RewardBatch, UpdateKind, UpdateRun
from rl_online.rewards import baseline
from rl_online.rewards.batch import Sample, SealedBatch, seal_batch
from rl_online.rewards.composite import parse_reward_spec
from rl_online.rewards.heldout import choose_heldout
from rl_online.rewards.update_config import UpdateConfig
from rl_online.services.overlaps import ask_about_batch
from rl_online.services.plans import effective_config, freeze
from rl_online.services.tokens import Text, encode_texts, num_token_ids, token_fault

UPDATE_JOB = "rl_online.update"
SEED_BITS = 63


class TooFewSamples(Conflict):
    """Not enough to learn from yet; the message says how many are missing."""

    code = "too_few_samples"


class UpdateUnderWay(Conflict):
    code = "update_under_way"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A sealed folder with all that its rows will say."""

    policy: Policy
    plan: LearningPlan
    parent: Checkpoint
    kind: str  # of the batch: rl, kto, or the kind of the update
    config: UpdateConfig
    sealed: SealedBatch
    samples: list[Sample]
    lineage: list[BatchSample]  # the rows of what it spends, unsaved and without their batch
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    dropped: dict[str, int]
    seal_s: float
    update_kind: str = UpdateKind.ONLINE
    options: dict[str, Any] = field(default_factory=dict)  # of the stage, by which it was sealed
    inputs: dict[str, Any] = field(default_factory=dict)  # see UpdateRun


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What is ready to be learnt from right now, before tokens are looked at."""

    line: Line
    plan: LearningPlan
    config: UpdateConfig
    kind: str
    candidates: list[Candidate]
    dropped: dict[str, int]
    oldest_at: Any = None


def look(policy: Policy, *, kind: str | None = None, overrides: Mapping[str, Any] | None = None) -> Pool:
    """The turns an update would take now. Without a `kind`: rl, or kto where only that has enough."""
    line, plan, config = _where(policy, overrides)
    if kind is None:
        pool = _pool(line, plan, config, RL)
        if len(pool.candidates) >= plan.min_turns:
            return pool
        other = _pool(line, plan, config, KTO)
        return other if len(other.candidates) >= plan.min_turns else pool
    return _pool(line, plan, config, kind)


def look_at_turns(policy: Policy) -> Pool:
    """As `look` for rl, without its corrections, which never make an update due, and of no more turns than do.

    For whoever asks only when one is.
    """
    line, plan, config = _where(policy)
    return _turns(line, plan, config, RL, most=plan.every_turns)


def prepare(pool: Pool, project_id: UUID, *, root: Path | None = None, least: int | None = None) -> Prepared:
    """Seal the pool's turns, under the home's batches unless another `root` is named.

    Raises TooFewSamples for fewer than `least`, without one the plan's minimum.
    """
    started = time.monotonic()
    plan, candidates = pool.plan, collecting.whole(pool.candidates)
    payloads = collecting.payloads_of([one.turn for one in candidates])
    dropped = Counter(pool.dropped)
    if changed := len(pool.candidates) - len(candidates):
        dropped["changed while it was sealed"] += changed
    usable: list[tuple[Whole, TurnPayload, list[int], list[int]]] = []
    ids = _token_ids(pool, payloads)
    num_ids = num_token_ids(pool.line.serving)
    for one in candidates:
        found = ids.get(one.turn.turn_id)
        if found is None:
            dropped["no token ids"] += 1
            continue
        payload = payloads[one.turn.turn_id]
        if fault := token_fault([*found[0], *found[1]], payload.logprobs if one.kind == RL else [], num_ids=num_ids):
            dropped[fault] += 1
        else:
            usable.append((one, payload, *found))
    num_turns = sum(not one.is_correction for one, *_ in usable)
    needed = plan.min_turns if least is None else least
    if num_turns < needed:
        raise TooFewSamples(f"{num_turns} of {needed} ready, {needed - num_turns} more needed")
    slices = [collecting.slice_of(one.turn, payload) for one, payload, *_ in usable]
    expected, state = _baselines(pool, [one for one, *_ in usable], slices)
    fresh = [one.turn.turn_id for one, *_ in usable if not one.is_correction]
    aside = choose_heldout(fresh, at_most=pool.config.heldout_samples)
    samples = [
        _sample(one, payload, prompt, completion, project_id=project_id, name=name, expected=value, aside=aside)
        for (one, payload, prompt, completion), name, value in zip(usable, slices, expected, strict=True)
    ]
    sealed = seal_batch(samples, root or settings.HOME.batches)
    return Prepared(
        policy=pool.line.policy,
        plan=plan,
        parent=pool.line.serving,
        kind=pool.kind,
        config=pool.config,
        sealed=sealed,
        samples=samples,
        lineage=[_lineage_of(one, sample) for (one, *_), sample in zip(usable, samples, strict=True)],
        baselines=state,
        dropped=dict(dropped),
        seal_s=time.monotonic() - started,
    )


def open_update(prepared: Prepared, *, trigger: str, requested_by: str) -> UpdateRun:
    """Write batch, lineage, UpdateRun and its job; in the caller's transaction.

    The batch of an update that came to nothing is taken up again when the same turns make it anew.
    Raises UpdateUnderWay when another update is open, Conflict when another checkpoint serves by now.
    """
    lock_for_update(prepared.policy, parent=prepared.parent)
    spec = prepared.plan.reward_spec
    rewards = [sample.reward for sample in prepared.samples]
    try:
        with transaction.atomic():
            batch, _ = RewardBatch.objects.update_or_create(
                policy=prepared.policy,
                digest=prepared.sealed.digest,
                defaults={
                    "kind": prepared.kind,
                    "reward_spec": spec,
                    "num_samples": prepared.sealed.num_samples,
                    "num_tokens": prepared.sealed.num_tokens,
                    "reward_mean": sum(rewards) / len(rewards) if rewards else 0.0,
                    "baselines": prepared.baselines,
                    "dropped": prepared.dropped,
                    "files_deleted_at": None,  # its folder has just been written again
                    "files_deleted_reason": "",
                },
            )
            for row in prepared.lineage:
                row.batch, row.kind = batch, prepared.update_kind
            BatchSample.objects.bulk_create(prepared.lineage, batch_size=500)
    except IntegrityError as error:
        raise UpdateUnderWay("another update took some of these turns at the same time; try again") from error
    freeze(spec)
    ask_about_batch(batch)
    return create_run(
        batch,
        parent=prepared.parent,
        config=prepared.config,
        trigger=trigger,
        requested_by=requested_by,
        timings={"seal": round(prepared.seal_s, 3)},
        kind=prepared.update_kind,
        options=prepared.options,
        inputs=prepared.inputs,
    )


def create_run(
    batch: RewardBatch,
    *,
    parent: Checkpoint,
    config: UpdateConfig,
    trigger: str,
    requested_by: str,
    timings: Mapping[str, float],
    kind: str,
    options: Mapping[str, Any],
    inputs: Mapping[str, Any],
    is_replay: bool = False,
) -> UpdateRun:
    """Reserve the next version and hand the run to the updater."""
    policy = batch.policy
    reserved = UpdateRun.objects.filter(policy=policy).aggregate(last=Max("version"))["last"] or 0
    version = max(next_version(policy), reserved + 1)
    run = UpdateRun.objects.create(
        policy=policy,
        kind=kind,
        options=dict(options),
        inputs=dict(inputs),
        batch=batch,
        parent=parent,
        version=version,
        trigger=trigger,
        requested_by=requested_by,
        config=config.to_json(),
        config_digest=config.digest,
        seed=seed_of(batch.digest, version),
        timings=dict(timings),
        is_replay=is_replay,
    )
    after = {"policy": policy.name, "kind": kind, "version": version, "batch": batch.digest, "trigger": trigger}
    audit("start", "update", run.id, actor=requested_by, after=after)
    enqueue(UPDATE_JOB, project_id=run.project_id, payload={"run": str(run.id)}, key=str(run.id))
    return run


def lock_for_update(policy: Policy, *, parent: Checkpoint) -> None:
    """One update at a time: serialises on the plan and checks that nothing moved. Raises UpdateUnderWay or Conflict."""
    LearningPlan.objects.select_for_update().get(policy=policy)
    deployment = Deployment.objects.select_for_update(of=("self",)).get(policy=policy, alias="default")
    if UpdateRun.objects.filter(policy=policy, state__in=OPEN_STATES).exists():
        raise UpdateUnderWay(f"an update of {policy.name} is under way")
    if deployment.checkpoint_id != parent.id:
        raise Conflict(f"{parent} is no longer serving; try again")


def seed_of(digest: str, version: int) -> int:
    """The same batch for the same version is trained with the same seed."""
    return int.from_bytes(hashlib.sha256(f"{digest}:{version}".encode()).digest()[:8]) >> (64 - SEED_BITS)


def _where(policy: Policy, overrides: Mapping[str, Any] | None = None) -> tuple[Line, LearningPlan, UpdateConfig]:
    """What serves, by which plan the policy learns, and with which settings an update would."""
    plan = LearningPlan.objects.select_related("reward_spec").get(policy=policy)
    config = effective_config(plan, overrides)
    deployment = Deployment.objects.select_related("checkpoint").get(policy=policy, alias="default")
    return collecting.line_of(policy, deployment.checkpoint), plan, config


def _pool(line: Line, plan: LearningPlan, config: UpdateConfig, kind: str) -> Pool:
    pool = _turns(line, plan, config, kind)
    if kind == KTO:
        return pool
    changed = collecting.corrections(line, parse_reward_spec(plan.reward_spec.body), max_lag=config.max_lag)
    return replace(
        pool,
        candidates=[*pool.candidates, *changed.candidates],
        dropped=dict(Counter(pool.dropped) + Counter(changed.dropped)),
    )


def _turns(line: Line, plan: LearningPlan, config: UpdateConfig, kind: str, *, most: int | None = None) -> Pool:
    spec = parse_reward_spec(plan.reward_spec.body)
    found = collecting.collect(line, spec, kind=kind, max_lag=config.max_lag, max_turns=most or plan.max_turns)
    return Pool(
        line=line,
        plan=plan,
        config=config,
        kind=kind,
        candidates=found.candidates,
        dropped=found.dropped,
        oldest_at=found.oldest_at,
    )


def _baselines(
    pool: Pool, candidates: Sequence[Candidate], slices: Sequence[str]
) -> tuple[list[float], dict[str, dict[str, float]]]:
    """What was expected of each sample, and the running state after them; a correction expects nothing."""
    previous = _running_baselines(pool.line)
    fresh = [index for index, one in enumerate(candidates) if not one.is_correction]
    expected = [0.0] * len(candidates)
    if pool.kind == KTO:
        mean = sum(candidates[index].reward for index in fresh) / len(fresh)
        for index in fresh:
            expected[index] = mean
        return expected, baseline.to_json(previous)
    after = baseline.next_baselines(previous, [(slices[index], candidates[index].reward) for index in fresh])
    for index, value in zip(fresh, after.per_sample, strict=True):
        expected[index] = value
    return expected, baseline.to_json(after.state)


def _running_baselines(line: Line) -> Mapping[str, baseline.RunningSlice]:
    """The state after the newest batch that the serving line learnt."""
    update = (
        UpdateRun.objects.select_related("batch")
        .filter(checkpoint__in=line.checkpoints, kind=UpdateKind.ONLINE)
        .order_by("-version")
        .first()
    )
    return baseline.from_json(update.batch.baselines if update else {})


def _lineage_of(one: Whole, sample: Sample) -> BatchSample:
    return BatchSample(
        turn_ref=one.turn.turn_id,
        session_ref=one.turn.session.session_id,
        user_hash=sample.row["user_hash"],
        label_id=one.turn.label_id,
        reward_revision=one.turn.reward_revision,
        slice=sample.row["slice"][:200],
        reward=sample.reward,
        baseline=sample.baseline,
        is_correction=one.is_correction,
        is_heldout=sample.is_heldout,
    )


def _sample(
    one: Whole,
    payload: TurnPayload,
    prompt: list[int],
    completion: list[int],
    *,
    project_id: UUID,
    name: str,
    expected: float,
    aside: Collection[str],
) -> Sample:
    turn = one.turn
    is_rl = one.kind == RL
    versions = (
        _per_token(payload.weight_versions, len(completion)) if payload.weight_versions else [-1] * len(completion)
    )
    assert turn.label is not None
    conduct = {name: holds for name in FACTS if (holds := getattr(turn, name)) is not None}
    return Sample(
        token_ids=[*prompt, *completion],
        prompt_length=len(prompt),
        mask=[0] * len(prompt) + [1] * len(completion),
        behaviour_logprobs=[0.0] * len(prompt) + list(payload.logprobs) if is_rl else None,
        reward=one.reward,
        baseline=expected,
        versions=[-1] * len(prompt) + versions,
        row={
            "turn": turn.turn_id,
            "session": turn.session.session_id,
            "user_hash": collecting.user_hash(project_id, turn.user),
            "kind": one.kind,
            "slice": name,
            "reward_breakdown": one.breakdown,
            "label_reason": turn.label.reason,
            "source": turn.source,
            "sampling": turn.sampling or {},
            **({"conduct": conduct} if conduct else {}),
            **({"group": turn.group} if turn.group and not one.is_correction else {}),
            **({"is_correction": True} if one.is_correction else {}),
            **({"is_heldout": True} if turn.turn_id in aside and not one.is_correction else {}),
        },
    )


def _per_token(spans: Sequence[Sequence[int]], num_tokens: int) -> list[int]:
    """Spans [first, end exclusive, version] spread over the tokens; -1 where no span says."""
    versions = [-1] * num_tokens
    for first, end, version in spans:
        versions[first:end] = [version] * (end - first)
    return versions


def _token_ids(pool: Pool, payloads: Mapping[str, TurnPayload]) -> dict[str, tuple[list[int], list[int]]]:
    """turn -> (prompt ids, completion ids): as recorded, or for KTO as the serving checkpoint encodes the text."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    texts: dict[tuple[str, str], Text] = {}
    for one in pool.candidates:
        payload = payloads.get(one.turn.turn_id)
        if payload is None:
            continue
        if payload.prompt_token_ids and payload.completion_token_ids and one.turn.policy == pool.line.policy.name:
            found[one.turn.turn_id] = (payload.prompt_token_ids, payload.completion_token_ids)
        elif one.kind == KTO and payload.completion:
            texts[payload.turn_id, "prompt"] = Text.prompt_of(payload)
            texts[payload.turn_id, "completion"] = Text(completion=payload.completion)
    encoded = encode_texts(pool.line.serving, texts)
    whole = [turn for turn, part in encoded if part == "prompt" and (turn, "completion") in encoded]
    return found | {turn: (encoded[turn, "prompt"], encoded[turn, "completion"]) for turn in whole}
