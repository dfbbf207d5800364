"""A canary that has run for some hours, with its looks and the report of an earlier one."""

from datetime import timedelta
from random import Random

from django.utils import timezone

from registry.models import Checkpoint
from rl_online.live_gate import LiveEvidence, LiveLimits, User, decide_live
from rl_online.models import CanaryLook, GateReport
from rl_online.services.canaries import start_canary
from rl_online.services.live_experiments import running


def make_trial(checkpoint: Checkpoint) -> GateReport:
    """`checkpoint` becomes the canary; returns the report that ended an earlier try. Inside a tenant."""
    Checkpoint.objects.filter(pk=checkpoint.pk).update(state="candidate")
    start_canary(checkpoint, share=0.1, actor="ada", reason="a test")
    experiment = running(checkpoint.pk)
    assert experiment is not None
    for number in range(1, 9):
        decision = decide_live(_seen(checkpoint, 60 * number, gain=0.01, seed=number), LiveLimits())
        at = timezone.now() - timedelta(minutes=45 - 5 * number)
        CanaryLook.objects.create(
            checkpoint=checkpoint, started_at=experiment.started_at, at=at,
            decision=decision.kind, reasons=list(decision.reasons), evidence=decision.to_json(),
        )  # fmt: skip
    ended = decide_live(_seen(checkpoint, 900, gain=-0.12, seed=1), LiveLimits())
    return GateReport.objects.create(
        checkpoint=checkpoint, decision=ended.kind, reasons=list(ended.reasons), evidence=ended.to_json()
    )


def _seen(checkpoint: Checkpoint, num_users: int, *, gain: float, seed: int) -> LiveEvidence:
    draw = Random(seed)
    arms: tuple[list[User], list[User]] = ([], [])
    for number in range(num_users):
        is_new = number % 3 == 0
        taste = draw.gauss(0.4, 0.15)
        arms[0 if is_new else 1].append(
            User(
                accept_share=min(1.0, max(0.0, draw.gauss(taste + gain * is_new, 0.1))),
                accept_share_before=min(1.0, max(0.0, draw.gauss(taste, 0.1))) if number % 4 else None,
                guards={
                    "error share": 0.0,
                    "retry share": float(draw.random() < 0.05),
                    "output tokens": draw.gauss(20, 4),
                    "latency": draw.gauss(180, 30),
                },
            )
        )
    return LiveEvidence(
        canary=str(checkpoint), serving="editor@2", share=0.1, days=0.04, new=arms[0], old=arms[1], num_crossed=2
    )
