"""Emptying a project: what users did and what was learnt from it goes, what people set up stays.

For demo data and trials. The first checkpoint of each policy serves again, with the same plan, prices, benchmarks, keys
and members. Names of checkpoints are never used again, so the later ones stay as rows without files; the audit trail
cannot be deleted and says that this was done. Inside a tenant.
"""

from django.apps import apps
from django.db import connection
from django.db.models import Model, QuerySet
from django.utils import timezone

from jobs.models import Job, JobState
from registry.errors import Conflict
from registry.models import Checkpoint, CheckpointState, Deployment, Policy, Project
from registry.services import audit
from registry.tenancy import TenantModel
from rl_online.models import OPEN_STATES, LearningPlan, UpdateRun
from rl_online.services.corpora import fail_abandoned_corpora
from rl_online.services.holdings import first_checkpoint

STAYS = frozenset(
    {
        "registry.Member", "registry.ApiKey", "registry.Policy", "registry.Checkpoint", "registry.Deployment",
        "registry.PriceCard", "registry.Budget", "registry.AuditEvent", "registry.SavedView",
        "registry.NotificationChannel",
        "feedback.LabelRecipe", "feedback.RecipeActivation",
        "evals.Benchmark", "evals.Problem", "evals.JudgeVersion", "evals.JudgeDuty", "evals.Panel",
        "evals.AnchorSet",
        "rl_online.RewardSpec", "rl_online.LearningPlan", "rl_online.Corpus",
    }
)  # fmt: skip
MANY = 10_000
PAYLOADS = "feedback_turnpayload"  # partitioned, and known to Django only by name


def reset_project(project: Project, *, actor: str) -> dict[str, int]:
    """Delete it in one transaction; table -> rows. Files go with the next collection. Raises Conflict mid-update."""
    # Plans, then deployments, as `sealing.lock_for_update`: no update starts between the look and the end.
    list(LearningPlan.objects.select_for_update().order_by("pk"))
    deployments = list(Deployment.objects.select_for_update().order_by("pk"))
    if UpdateRun.objects.filter(state__in=OPEN_STATES).exists():
        raise Conflict("an update is under way; cancel it, or wait until it is over")
    for deployment in deployments:
        _serve_first(deployment)
    gone: dict[str, int] = {}
    with connection.cursor() as cursor:
        for table in [*_tables(), PAYLOADS]:
            # Foreign keys are checked at the end of the transaction, so the order does not matter.
            cursor.execute(f'DELETE FROM "{table}" WHERE project_id = %s', [project.id])  # noqa: S608 - our own names
            gone[table] = cursor.rowcount
    gone["checkpoints"] = _later_checkpoints().update(
        state=CheckpointState.RETIRED,
        files_deleted_at=timezone.now(),
        files_deleted_reason="the project was reset",
        is_pinned=False,
    )
    Job.objects.filter(project_id=project.id).exclude(state=JobState.RUNNING).delete()
    fail_abandoned_corpora()
    gone = {table: count for table, count in gone.items() if count}
    audit("reset", "project", project.slug, actor=actor, after={"deleted": gone})
    return gone


def what_goes() -> dict[str, int]:
    """Sessions and turns (up to `many`) and checkpoints that a reset would delete, for the question before it."""
    turn, session = apps.get_model("feedback.Turn"), apps.get_model("feedback.AgentSession")
    return {
        "sessions": session.objects.values("pk")[:MANY].count(),
        "turns": turn.objects.values("pk")[:MANY].count(),
        "checkpoints": _later_checkpoints().count(),
        "many": MANY,
    }


def tenant_models() -> list[type[Model]]:
    return [model for model in apps.get_models() if issubclass(model, TenantModel)]


def _tables() -> list[str]:
    return [model._meta.db_table for model in tenant_models() if model._meta.label not in STAYS]


def _later_checkpoints() -> QuerySet[Checkpoint]:
    """All with files but the first of each policy."""
    policies = Policy.objects.filter(checkpoints__isnull=False).distinct().values_list("id", flat=True)
    firsts = [first_checkpoint(policy_id).pk for policy_id in policies]
    return Checkpoint.objects.filter(files_deleted_at=None).exclude(pk__in=firsts)


def _serve_first(deployment: Deployment) -> None:
    first = first_checkpoint(deployment.policy_id)
    Checkpoint.objects.filter(pk=first.pk).update(state=CheckpointState.SERVING)
    deployment.checkpoint, deployment.previous, deployment.canary = first, None, None
    deployment.canary_share = 0.0
    deployment.fence += 1
    deployment.changed_at = timezone.now()
    deployment.save()
