"""Which checkpoints have answered the gate's problems already. Inside a tenant."""

from evals.models import EvalRun, RunState
from registry.models import Checkpoint
from rl_online.models import LearningPlan
from rl_online.services.plans import gate_sampling

SCORER = "unit_tests"


def has_answered(checkpoint: Checkpoint, plan: LearningPlan) -> bool:
    """Whether all its answers are there, sampled as the plan says; without a benchmark nothing is asked."""
    if plan.gate_benchmark is None:
        return True
    name, _, version = plan.gate_benchmark.rpartition("@")
    return EvalRun.objects.filter(
        benchmark__name=name,
        benchmark__version=version,
        checkpoint=str(checkpoint),
        scorer=SCORER,
        sampling=gate_sampling(plan),
        state=RunState.DONE,
    ).exists()
