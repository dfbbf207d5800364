"""A policy's start and the plan it learns by: first checkpoint, learning plan.

All but `start_policy` run inside `with tenant(project_id):`.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from evals.judging.judge import Protocol
from evals.models import JudgeVersion
from registry.errors import Conflict, InvalidInput
from registry.models import Checkpoint, CheckpointState, Deployment, Policy
from registry.services import audit, create_policy, register_checkpoint
from registry.tenancy import tenant
from rl_online.gate.limits import Limits
from rl_online.gate.suites import Suite, suites_from
from rl_online.live_gate import GuardLimit, LiveLimits
from rl_online.models import LearningPlan, Promotion, RewardSpec
from rl_online.rewards.durable import new_folder
from rl_online.rewards.update_config import UpdateConfig
from rl_online.services.reward_specs import latest_reward_spec
from rl_online.weights.manifest import MANIFEST, Manifest, verify_folder, write_manifest

FIRST_VERSION = 1
PLAN_FIELDS = {
    "every_turns",
    "every_minutes",
    "min_turns",
    "max_turns",
    "promotion",
    "is_paused",
    "update_config",
    "gate_limits",
    "gate_benchmark",
    "gate_sampling",
    "gate_suites",
    "gate_judge_id",
    "live_limits",
    "judged_pairs",
}
MAX_JUDGED_PAIRS = 2000
GATE_SAMPLING = {"temperature": 0, "max_tokens": 256}  # greedy: the gate compares the likeliest answers


def start_policy(
    project_id: UUID, *, name: str, folder: Path, source: str = "", actor: str = "strop", **plan: Any
) -> Policy:
    """Make `folder` (a Hugging Face folder) version 1 of a new policy, serve it, and give it a learning plan.

    `plan` are fields of LearningPlan. Starting again what was started with the same name returns the policy as it is.
    """
    with tenant(project_id):
        known = Policy.objects.filter(name=name, deployments__alias="default").first()
        if known is not None:
            return known
        policy = Policy.objects.filter(name=name).first() or create_policy(
            name, source=source or folder.name, actor=actor
        )
    target = checkpoint_folder(policy.id, FIRST_VERSION)
    manifest = _copy(folder, target, policy=str(policy.id))
    with tenant(project_id):
        first = register_checkpoint(
            policy,
            version=FIRST_VERSION,
            parent=None,
            tree_digest=manifest.tree_digest,
            folder=str(target.relative_to(settings.HOME.checkpoints)),
            num_bytes=sum(row.size for row in manifest.files.values()),
            optimizer_step=0,
            actor=actor,
            state=CheckpointState(CheckpointState.SERVING),
        )
        Deployment.objects.create(policy=policy, alias="default", checkpoint=first)
        LearningPlan.objects.create(policy=policy, reward_spec=latest_reward_spec())
        audit("deploy", "policy", name, actor=actor, after={"checkpoint": str(first)})
        if plan:
            change_plan(policy, actor=actor, **plan)
    return policy


def change_plan(policy: Policy, *, actor: str, **changes: Any) -> LearningPlan:
    """Change some fields of the plan; raises InvalidInput naming the one that is wrong. Audited."""
    unknown = set(changes) - PLAN_FIELDS
    if unknown:
        raise InvalidInput(f"unknown; known are {', '.join(sorted(PLAN_FIELDS))}", field=min(unknown))
    plan = LearningPlan.objects.select_for_update().get(policy=policy)
    before = {name: getattr(plan, name) for name in changes}
    for name, value in changes.items():
        setattr(plan, name, value)
    check_plan(plan)
    plan.save()
    audit("change", "learning plan", policy.name, actor=actor, before=before, after=changes)
    return plan


def pause_learning(policy: Policy, *, actor: str, reason: str = "") -> None:
    """No further update starts; one that runs is finished."""
    _set_paused(policy, True, actor=actor, reason=reason)


def resume_learning(policy: Policy, *, actor: str, reason: str = "") -> None:
    _set_paused(policy, False, actor=actor, reason=reason)


def freeze(spec: RewardSpec) -> None:
    """From its first batch on a recipe is never changed."""
    RewardSpec.objects.filter(pk=spec.pk, frozen_at=None).update(frozen_at=timezone.now())


def effective_config(plan: LearningPlan, overrides: Mapping[str, Any] | None = None) -> UpdateConfig:
    """The plan's settings with this update's own on top. Raises InvalidInput naming what is wrong."""
    try:
        return UpdateConfig.from_json({**plan.update_config, **(overrides or {})})
    except ValueError as error:
        raise InvalidInput(str(error), field="update_config") from None


def gate_limits(plan: LearningPlan) -> Limits:
    try:
        return Limits(**plan.gate_limits)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(str(error), field="gate_limits") from None


def live_limits(plan: LearningPlan) -> LiveLimits:
    """What a canary has to show. Guards are given by name, e.g. {"guards": {"latency": 0.1}}; one of None is not used.

    Raises InvalidInput naming what is wrong.
    """
    given = dict(plan.live_limits)
    try:
        changed = given.pop("guards", {})
        known = {guard.name: guard for guard in LiveLimits().guards}
        if unknown := sorted(changed.keys() - known.keys()):
            raise InvalidInput(f"no guard {unknown[0]!r}; known are {', '.join(known)}", field="live_limits")
        guards = tuple(_limited(guard, changed.get(name, guard.at_most)) for name, guard in known.items())
        limits = LiveLimits(**given, guards=tuple(guard for guard in guards if guard is not None))
        for name in ("margin", "scale", "max_days", "min_users"):
            if getattr(limits, name) <= 0:
                raise InvalidInput(f"{name} is {getattr(limits, name)}; give more than 0", field="live_limits")
        if not 0.5 <= limits.confidence < 1:
            raise InvalidInput(f"confidence is {limits.confidence}; give .5 to below 1", field="live_limits")
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(str(error), field="live_limits") from None
    return limits


def _limited(guard: GuardLimit, at_most: float | None) -> GuardLimit | None:
    return None if at_most is None else replace(guard, at_most=float(at_most))


def gate_sampling(plan: LearningPlan) -> dict[str, Any]:
    """How the gate's answers are sampled, as the gateway takes it."""
    return {**GATE_SAMPLING, **plan.gate_sampling}


def suites_of(plan: LearningPlan) -> list[Suite]:
    """What a candidate is proved on, the plan's benchmark first; empty without one.

    A further suite has its own sampling: what cuts off the answers of one would spoil another's.
    """
    if plan.gate_benchmark is None:
        return []
    further = [replace(suite, sampling={**GATE_SAMPLING, **suite.sampling}) for suite in _further_suites(plan)]
    return [Suite(benchmark=plan.gate_benchmark, sampling=gate_sampling(plan)), *further]


def _further_suites(plan: LearningPlan) -> tuple[Suite, ...]:
    try:
        return suites_from(plan.gate_suites)
    except ValueError as error:
        raise InvalidInput(str(error), field="gate_suites") from None


def checkpoint_folder(policy_id: UUID, version: int) -> Path:
    return settings.HOME.checkpoints / str(policy_id) / f"v{version:06d}"


def deltas_folder(policy_id: UUID) -> Path:
    return settings.HOME.checkpoints / str(policy_id) / "deltas"


def folder_of(checkpoint: Checkpoint) -> Path:
    return settings.HOME.checkpoints / checkpoint.folder


def _set_paused(policy: Policy, is_paused: bool, *, actor: str, reason: str) -> None:
    changed = LearningPlan.objects.filter(policy=policy, is_paused=not is_paused).update(is_paused=is_paused)
    if changed:
        audit("pause" if is_paused else "resume", "learning plan", policy.name, actor=actor, reason=reason)


def check_plan(plan: LearningPlan) -> None:
    """Raises InvalidInput naming the field."""
    effective_config(plan)
    live_limits(plan)
    _check_gate(plan)
    if plan.promotion not in Promotion.values:
        raise InvalidInput(f"found {plan.promotion!r}; use {' or '.join(Promotion.values)}", field="promotion")
    for name in ("every_turns", "min_turns", "max_turns"):
        value = getattr(plan, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInput(f"found {value!r}; give a whole number of at least 1", field=name)
    if not plan.min_turns <= plan.every_turns <= plan.max_turns:
        raise InvalidInput(
            f"min_turns {plan.min_turns} <= every_turns {plan.every_turns} <= max_turns {plan.max_turns} must hold",
            field="every_turns",
        )
    if plan.every_minutes is not None and (not isinstance(plan.every_minutes, int) or plan.every_minutes < 1):
        raise InvalidInput(f"found {plan.every_minutes!r}; give whole minutes, or nothing", field="every_minutes")


def _check_gate(plan: LearningPlan) -> None:
    limits, further = gate_limits(plan), _further_suites(plan)
    if further and plan.gate_benchmark is None:
        raise InvalidInput("name the first benchmark before further ones", field="gate_benchmark")
    if any(suite.benchmark == plan.gate_benchmark for suite in further):
        raise InvalidInput(f"{plan.gate_benchmark} is the first benchmark already", field="gate_suites")
    pairs, judge = plan.judged_pairs, plan.gate_judge_id
    if judge is not None and not (isinstance(judge, int) and _compares(judge)):
        raise InvalidInput(f"no judge {str(judge)[:40]} compares two answers", field="gate_judge_id")
    if isinstance(pairs, bool) or not isinstance(pairs, int) or not 0 <= pairs <= MAX_JUDGED_PAIRS:
        raise InvalidInput(
            f"found {str(pairs)[:40]}; give a whole number up to {MAX_JUDGED_PAIRS}", field="judged_pairs"
        )
    if limits.judged is not None and pairs == 0:
        raise InvalidInput("is 0, and the limits ask for a judge's vote; give the pairs to judge", field="judged_pairs")


def _compares(judge_id: int) -> bool:
    return JudgeVersion.objects.filter(pk=judge_id, protocol=Protocol.PAIRWISE).exists()


def _copy(folder: Path, target: Path, *, policy: str) -> Manifest:
    """The files of `folder` under `target`, linked where the disk allows, with a manifest of their own."""
    if not (folder / "config.json").is_file():
        raise InvalidInput(f"{folder.name} has no config.json; give a Hugging Face model folder", field="folder")
    if target.is_dir():
        found = verify_folder(target)
        if (folder / MANIFEST).is_file() and verify_folder(folder).tree_digest != found.tree_digest:
            raise Conflict(f"{target.name} of this policy exists with other weights", field="folder")
        return found
    with new_folder(target) as draft:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and name.parts[0] != "train" and path.name != MANIFEST:
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                _link(path, draft / name)
        write_manifest(draft, policy=policy, version=FIRST_VERSION, code_version=settings.CODE_VERSION)
    return verify_folder(target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(source, target)
