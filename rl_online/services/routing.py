"""Which checkpoint answers a request for a model name."""

import hashlib
from dataclasses import dataclass
from uuid import UUID

from registry.errors import NotFound
from registry.models import Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online.services.holdings import is_held


class ModelNotFound(NotFound):
    code = "model_not_found"


@dataclass(frozen=True, kw_only=True)
class Route:
    """One checkpoint, under the names that users and engines know it by."""

    policy_id: UUID
    policy: str
    version: int
    tree_digest: str
    follows_deployment: bool  # False: the version was named

    @property
    def name(self) -> str:
        return f"{self.policy}@{self.version}"

    @property
    def engine_name(self) -> str:
        return f"{self.policy_id}@{self.version}"


def resolve(project_id: UUID, model: str, *, sticky: str) -> Route:
    """`<policy>` follows its deployment, a `sticky` key to one side of a canary that an engine holds;
    `<policy>@<version>` is it.

    Raises ModelNotFound, also for another project's policy.
    """
    name, at, version = model.partition("@")
    with tenant(project_id):
        found = _named(name, version) if at else _deployed(name, sticky)
    if found is None:
        raise ModelNotFound(f"no model {model!r} in this project", field="model")
    return Route(
        policy_id=found.policy_id,
        policy=name,
        version=found.version,
        tree_digest=found.tree_digest,
        follows_deployment=not at,
    )


def model_names(project_id: UUID) -> list[tuple[str, int]]:
    """(name, Unix time it came to be) of every name `resolve` takes that serves, policies first."""
    with tenant(project_id):
        found = Deployment.objects.select_related("policy", "checkpoint", "canary").filter(alias="default")
        deployments = list(found.order_by("policy__name"))
    policies = [(one.policy.name, int(one.changed_at.timestamp())) for one in deployments]
    checkpoints = [
        (f"{one.policy.name}@{checkpoint.version}", int(checkpoint.created_at.timestamp()))
        for one in deployments
        for checkpoint in (one.checkpoint, one.canary)
        if checkpoint is not None
    ]
    return policies + checkpoints


def is_in_share(sticky: str, canary: UUID, share: float) -> bool:
    """Whether this key belongs to the canary's share; a larger share keeps it, another canary draws anew.

    The key is hashed, so that no user's name or number decides.
    """
    drawn = int.from_bytes(hashlib.sha256(f"{canary}:{sticky}".encode()).digest()[:8]) / 2**64
    return drawn < share


def _named(name: str, version: str) -> Checkpoint | None:
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        return None
    return Checkpoint.objects.filter(policy__name=name, version=int(version)).first()


def _deployed(name: str, sticky: str) -> Checkpoint | None:
    found = Deployment.objects.select_related("checkpoint", "previous", "canary")
    deployment = found.filter(policy__name=name, alias="default").first()
    if deployment is None:
        return None
    canary = deployment.canary
    if canary is not None and is_in_share(sticky, canary.id, deployment.canary_share) and is_held(canary):
        return canary
    if deployment.previous is not None and is_held(deployment.previous) and not is_held(deployment.checkpoint):
        return deployment.previous  # the alias has moved, the weights are still on their way
    return deployment.checkpoint
