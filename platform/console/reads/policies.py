"""Which policy a page speaks of, what it serves and how it learns."""

from dataclasses import dataclass

from registry.errors import NotFound
from registry.models import Checkpoint, Deployment, Policy
from rl_online.models import EngineHolding, LearningPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What a policy serves right now. `serving` None: nothing yet."""

    policy: Policy
    plan: LearningPlan | None
    deployment: Deployment | None
    num_engines: int  # engines that hold the serving checkpoint by its right digest

    @property
    def serving(self) -> Checkpoint | None:
        return self.deployment.checkpoint if self.deployment else None


def all_policies() -> list[Policy]:
    return list(Policy.objects.order_by("created_at"))


def chosen(policies: list[Policy], name: str | None) -> Policy | None:
    """The named one, without a name the first, None when there are none. Raises NotFound for an unknown name."""
    if not name:
        return policies[0] if policies else None
    for policy in policies:
        if policy.name == name:
            return policy
    raise NotFound(f"no policy {name!r} in this project")


def standing(policy: Policy) -> Standing:
    deployment = (
        Deployment.objects.select_related("checkpoint__policy", "previous__policy")
        .filter(policy=policy, alias="default")
        .first()
    )
    num_engines = 0
    if deployment:
        held = EngineHolding.objects.filter(checkpoint=deployment.checkpoint, error="")
        num_engines = held.filter(tree_digest=deployment.checkpoint.tree_digest).count()
    return Standing(
        policy=policy,
        plan=LearningPlan.objects.filter(policy=policy).first(),
        deployment=deployment,
        num_engines=num_engines,
    )
