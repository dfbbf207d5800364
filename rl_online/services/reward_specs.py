"""Versions of the recipe from label and scores to reward: making one, and letting a policy learn by it.

A version is never changed; batches name the one they were sealed by. Inside a tenant; every change is audited.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import Policy
from registry.services import audit
from rl_online.models import LearningPlan, RewardSpec
from rl_online.rewards import composite
from rl_online.rewards.composite import BODIES, InvalidRewardSpec, parse_reward_spec

KIND = "reward spec"


def latest_reward_spec(name: str = "default") -> RewardSpec:
    """The newest version of a recipe; one that stands ready (`default`, `code`) is made on first use."""
    spec = RewardSpec.objects.filter(name=name).order_by("-version").first()
    if spec is None:
        if name not in BODIES:
            raise NotFound(f"no reward spec {name!r}", field="reward_spec")
        spec = create_reward_spec(BODIES[name], actor="strop", name=name)
    return spec


def find_reward_spec(name: str, version: int) -> RewardSpec:
    """Raises NotFound."""
    spec = RewardSpec.objects.filter(name=name, version=version).first()
    if spec is None:
        raise NotFound(f"no reward spec {name} v{version}", field="reward_spec")
    return spec


def create_reward_spec(body: Mapping[str, Any], *, actor: str, name: str = "default", reason: str = "") -> RewardSpec:
    """A new version that no policy learns by yet.

    Raises InvalidInput naming the field that is wrong, Conflict when a version says the same.
    """
    checked(body)
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    versions = RewardSpec.objects.filter(name=name)
    same = versions.filter(digest=digest).order_by("-version").first()
    if same is not None:
        raise Conflict(f"reward spec {same} says the same; nothing was made")
    newest = versions.order_by("-version").values_list("version", flat=True).first() or 0
    try:
        with transaction.atomic():
            spec = RewardSpec.objects.create(name=name, version=newest + 1, body=dict(body), digest=digest)
    except IntegrityError as error:
        raise Conflict("another version was made at the same time; look at it and try again") from error
    audit("create", KIND, spec, actor=actor, after=dict(body), reason=reason)
    return spec


def activate_reward_spec(policy: Policy, spec: RewardSpec, *, actor: str, reason: str = "") -> None:
    """Let the policy's next batches be rewarded by `spec`. Raises NotFound without a plan, Conflict when it is so."""
    plan = LearningPlan.objects.select_for_update(of=("self",)).select_related("reward_spec").filter(policy=policy)
    found = plan.first()
    if found is None:
        raise NotFound(f"policy {policy.name!r} has no learning plan", field="policy")
    before = found.reward_spec
    if before.pk == spec.pk:
        raise Conflict(f"{policy.name} learns by {spec} already")
    found.reward_spec = spec
    found.save(update_fields=["reward_spec", "updated_at"])
    audit(
        "activate", KIND, spec, actor=actor, reason=reason,
        before={"policy": policy.name, "spec": str(before)}, after={"policy": policy.name, "spec": str(spec)},
    )  # fmt: skip


def checked(body: Mapping[str, Any]) -> composite.RewardSpec:
    """Raises InvalidInput naming the path of the part that is wrong."""
    try:
        return parse_reward_spec(body)
    except InvalidRewardSpec as error:
        raise InvalidInput(error.message, field=error.field) from None
