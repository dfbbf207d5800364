"""The reward models of a policy: registering one, finding one by its name, where its files lie. Inside a tenant."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet

from registry.errors import InvalidInput
from registry.models import Policy
from rl_online.models import RewardModel, UpdateRun
from rl_online.services.plans import checkpoint_folder


def folder_of_reward_model(row: RewardModel) -> Path:
    return settings.HOME.checkpoints / row.folder


def register_reward_model(run: UpdateRun, result: Mapping[str, Any]) -> None:
    """Write down what a run of kind reward_model left in the folder of its number."""
    folder = checkpoint_folder(run.policy_id, run.version).relative_to(settings.HOME.checkpoints)
    RewardModel.objects.create(
        policy=run.policy,
        run=run,
        part=result["report"]["part"],
        tree_digest=result["tree_digest"],
        folder=str(folder),
        num_bytes=result["num_bytes"],
        report=result["report"],
    )


def usable_reward_models(policy: Policy) -> QuerySet[RewardModel]:
    """Whose files are there, newest first."""
    rows = RewardModel.objects.filter(policy=policy, files_deleted_at__isnull=True)
    return rows.select_related("run", "policy").order_by("-created_at")


def find_reward_model(policy: Policy, named: str, *, field: str) -> RewardModel:
    """By its id or the number of its run. Raises InvalidInput, naming `field`, where there is none with files."""
    found = usable_reward_models(policy).filter(_is_named(named)).first()
    if found is None:
        known = ", ".join(str(one.run.version) for one in usable_reward_models(policy)[:10]) or "none"
        raise InvalidInput(f"{named!r} is no reward model of {policy.name}; there are {known}", field=field)
    return found


def _is_named(named: str) -> Q:
    if named.isdigit() and len(named) < 10:
        return Q(run__version=int(named))
    try:
        return Q(pk=UUID(named))
    except ValueError:
        return Q(pk__in=[])
