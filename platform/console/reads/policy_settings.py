"""The policies of a project as their settings page shows them: what serves, and what is still on its way."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Prefetch
from django.utils import timezone

from registry.models import Checkpoint, Deployment, Policy
from rl_online.models import EngineHolding, ImportState, LearningPlan, PolicyImport
from rl_online.services.holdings import REPORT_HOLDS_FOR

SHOW_IMPORTS_FOR = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRow:
    policy: Policy
    serving: Checkpoint | None
    state: str  # nothing | loading | failed | held: what engines say of the serving checkpoint
    error: str  # of an engine that could not load it
    num_engines: int
    num_checkpoints: int
    plan: LearningPlan | None


def policy_rows() -> list[PolicyRow]:
    """Every policy, in three queries."""
    holdings = EngineHolding.objects.filter(reported_at__gt=timezone.now() - REPORT_HOLDS_FOR)
    deployments = {
        one.policy_id: one
        for one in Deployment.objects.filter(alias="default")
        .select_related("checkpoint__policy")
        .prefetch_related(Prefetch("checkpoint__holdings", queryset=holdings, to_attr="lately"))
    }
    policies = Policy.objects.select_related("plan").annotate(num_checkpoints=Count("checkpoints"))
    return [_row(policy, deployments.get(policy.id)) for policy in policies.order_by("created_at")]


def imports() -> list[PolicyImport]:
    """Those under way, and those that ended within a day, newest first."""
    since = timezone.now() - SHOW_IMPORTS_FOR
    return list(PolicyImport.objects.select_related("policy").filter(created_at__gt=since).order_by("-created_at")[:20])


def is_settled(rows: list[PolicyRow], imports: list[PolicyImport]) -> bool:
    """Whether nothing on the page will change by itself."""
    return all(ImportState(one.state).is_over for one in imports) and all(row.state != "loading" for row in rows)


def _row(policy: Policy, deployment: Deployment | None) -> PolicyRow:
    serving = deployment.checkpoint if deployment else None
    holdings: list[EngineHolding] = getattr(serving, "lately", [])
    held = [one for one in holdings if not one.error and serving and one.tree_digest == serving.tree_digest]
    error = next((one.error for one in holdings if one.error), "")
    return PolicyRow(
        policy=policy,
        serving=serving,
        state="nothing" if serving is None else "held" if held else "failed" if error else "loading",
        error=error,
        num_engines=len(held),
        num_checkpoints=getattr(policy, "num_checkpoints", 0),
        plan=getattr(policy, "plan", None),
    )
