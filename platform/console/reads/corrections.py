"""What became of corrections: turns whose label or reward changed after they were learnt. Inside a tenant; reads only.

A correction is sealed into one batch and sent once. Where that batch made the checkpoint that serves, or one of its
ancestors, it was taught; where its candidate is not decided on yet, it is held; where its candidate does not serve, it
is spent and is not sent again (unless the turn's label changes once more). What no batch has, waits for the next one.
"""

from dataclasses import dataclass

from registry.models import Deployment, Policy
from rl_online import collecting
from rl_online.models import OPEN_STATES, BatchSample, LearningPlan, UpdateRun, UpdateState
from rl_online.rewards.composite import parse_reward_spec
from rl_online.services.plans import effective_config

UNDECIDED = (*OPEN_STATES, UpdateState.WAITING)
SPENT = "correction spent on a candidate that does not serve"  # how collecting names what it does not send again


@dataclass(frozen=True, kw_only=True, slots=True)
class Corrections:
    """Of one policy."""

    taught: int = 0
    held: int = 0
    spent: int = 0
    waiting: int = 0  # for the next batch
    left_out: tuple[tuple[str, int], ...] = ()  # changed, but cannot be sent: (reason, turns)

    @property
    def is_any(self) -> bool:
        return bool(self.taught or self.held or self.spent or self.waiting or self.left_out)


def corrections(policy: Policy) -> Corrections:
    """All zero where nothing serves or the policy does not learn."""
    deployment = Deployment.objects.filter(policy=policy, alias="default").select_related("checkpoint").first()
    plan = LearningPlan.objects.select_related("reward_spec").filter(policy=policy).first()
    if deployment is None or plan is None:
        return Corrections()
    line = collecting.line_of(policy, deployment.checkpoint)
    found = collecting.corrections(
        line, parse_reward_spec(plan.reward_spec.body), max_lag=effective_config(plan).max_lag
    )
    left_out = sorted((reason, n) for reason, n in found.dropped.items() if reason != SPENT)
    sent = BatchSample.objects.filter(batch__policy=policy, is_correction=True)
    runs = UpdateRun.objects.filter(policy=policy)
    on_line = runs.filter(checkpoint__in=line.checkpoints).values("batch")
    undecided = runs.filter(state__in=UNDECIDED).values("batch")
    taught = sent.filter(batch__in=on_line).count()
    held = sent.exclude(batch__in=on_line).filter(batch__in=undecided).count()
    return Corrections(
        taught=taught,
        held=held,
        spent=sent.count() - taught - held,
        waiting=len(found.candidates),
        left_out=tuple(left_out),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """The corrections of one batch."""

    number: int
    became: str  # taught | held | spent


def sent_with(run: UpdateRun) -> Sent:
    """A batch that is learnt twice is taught where one of its checkpoints serves or is an ancestor."""
    number = BatchSample.objects.filter(batch=run.batch_id, is_correction=True).count()
    if not number:
        return Sent(number=0, became="taught")
    deployment = Deployment.objects.filter(policy=run.policy_id, alias="default").select_related("checkpoint").first()
    line = collecting.line_of(run.policy, deployment.checkpoint).checkpoints if deployment else []
    runs = UpdateRun.objects.filter(batch=run.batch_id)
    if runs.filter(checkpoint__in=line).exists():
        return Sent(number=number, became="taught")
    return Sent(number=number, became="held" if runs.filter(state__in=UNDECIDED).exists() else "spent")
