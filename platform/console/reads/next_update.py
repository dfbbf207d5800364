"""When a policy learns next by itself, and from how much."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from console.reads.policies import Standing
from feedback.models import Turn
from registry.budgets import stopped
from registry.models import Budget, Policy
from rl_online.collecting import LIVE_SOURCES
from rl_online.models import UpdateRun
from rl_online.services.updates import readiness
from rl_online.triggering import Outlook, Rhythm, Situation, Trigger, foresee

RATE_OVER = timedelta(minutes=30)  # how far back the pace of settled turns is measured


@dataclass(frozen=True, kw_only=True, slots=True)
class Next:
    """What the next update would take now, and when it is likely to start."""

    num_ready: int  # at most as many as make it due
    is_capped: bool  # there may be more
    trigger: Trigger
    outlook: Outlook
    turns_per_minute: float  # settled, over the last half hour


def look(policy: Policy, standing: Standing, running: UpdateRun | None, *, now: datetime) -> Next | None:
    """None for a policy without a plan, or that serves nothing yet."""
    plan = standing.plan
    if plan is None or standing.serving is None:
        return None
    ready = readiness(policy)
    pace = _turns_per_minute(policy, now)
    last = UpdateRun.objects.filter(policy=policy).order_by("-created_at").values_list("created_at", flat=True).first()
    situation = Situation(
        num_ready=ready.num_ready,
        oldest_ready_at=None,
        last_update_at=last,
        is_paused=plan.is_paused or bool(stopped(Budget.Kind.TRAINING)),
        is_updating=running is not None,
        now=now,
    )
    rhythm = Rhythm(every_turns=plan.every_turns, every_minutes=plan.every_minutes, min_turns=plan.min_turns)
    outlook = foresee(situation, rhythm, turns_per_minute=pace)
    return Next(
        num_ready=ready.num_ready,
        is_capped=ready.num_ready >= plan.every_turns,
        trigger=ready.trigger,
        outlook=outlook,
        turns_per_minute=pace,
    )


def _turns_per_minute(policy: Policy, now: datetime) -> float:
    """Turns of the policy made and settled lately; a window that is still open makes it a little low."""
    since = now - RATE_OVER
    settled = Turn.objects.filter(policy=policy.name, source__in=LIVE_SOURCES, settled_at__isnull=False)
    return settled.filter(at__gte=since, at__lte=now).count() / (RATE_OVER.total_seconds() / 60)
