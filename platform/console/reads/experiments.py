"""A canary as an experiment: its looks so far, the newest one in full, and the limits it is judged by."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from console.charts.canary import Look, sequence
from registry.models import Checkpoint, Deployment
from rl_online.live_gate import LiveLimits
from rl_online.models import CanaryLook, LearningPlan, Promotion
from rl_online.services.live_experiments import running

MOST = 500  # looks that are drawn; the newest


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The running canary of a deployment."""

    canary: Checkpoint
    started_at: datetime
    limits: LiveLimits
    newest: CanaryLook | None  # None: the first look is still to come
    figure: dict[str, Any] | None
    days_left: float
    promotes_itself: bool

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.newest.evidence["live_findings"] if self.newest else []
        return found


def trial_of(deployment: Deployment) -> Trial | None:
    """None when no canary runs."""
    if deployment.canary_id is None:
        return None
    experiment = running(deployment.canary_id)
    if experiment is None:
        return None
    kept = CanaryLook.objects.filter(checkpoint=experiment.canary, started_at=experiment.started_at)
    looks = list(kept.order_by("-at")[:MOST])
    plan = LearningPlan.objects.get(policy=deployment.policy)
    days = (timezone.now() - experiment.started_at).total_seconds() / 86400
    return Trial(
        canary=experiment.canary,
        started_at=experiment.started_at,
        limits=experiment.limits,
        newest=looks[0] if looks else None,
        figure=sequence(
            [_drawn(look) for look in reversed(looks)],
            version=experiment.canary.version,
            margin=experiment.limits.margin,
        ),
        days_left=max(0.0, experiment.limits.max_days - days),
        promotes_itself=plan.promotion == Promotion.AUTOMATIC,
    )


def _drawn(look: CanaryLook) -> Look:
    accept = look.evidence["live_findings"][0]
    found = accept["difference"]
    return Look(
        at=look.at,
        value=found["value"],
        low=found["low"],
        high=found["high"],
        num_new=accept["num_new"],
        num_old=accept["num_old"],
    )
