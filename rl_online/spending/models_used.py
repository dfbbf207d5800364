"""External models that were called lately. Inside a tenant."""

from datetime import timedelta

from django.db.models import Count, Sum
from django.utils import timezone

from evals.models import EvalRun, JudgeCall
from feedback.models import TurnRollup

LOOK_BACK = timedelta(days=90)
MAX_EACH = 1_000


def models_used() -> dict[str, int]:
    """Model -> turns, judgements and runs of the last 90 days; those that others ran count no call. Four queries."""
    since = timezone.now() - LOOK_BACK
    turns = TurnRollup.objects.filter(hour__gte=since, model__isnull=False).values_list("model")
    judged = JudgeCall.objects.filter(created_at__gte=since).values_list("judge__model")
    runs = EvalRun.objects.filter(started_at__gte=since, model__isnull=False).values_list("model")
    made_here = runs.filter(source_key__isnull=True)  # what others ran, others paid
    calls: dict[str, int] = {}
    for rows in (turns.annotate(n=Sum("turns")), judged.annotate(n=Count("id")), made_here.annotate(n=Count("id"))):
        for model, n in rows.order_by("-n")[:MAX_EACH]:
            calls[model] = calls.get(model, 0) + n
    for (model,) in runs.distinct()[:MAX_EACH]:
        calls.setdefault(model, 0)
    return {model: n for model, n in calls.items() if not is_ours(model)}


def is_ours(model: str) -> bool:
    _, at, version = model.rpartition("@")
    return bool(at) and version.isdigit()
