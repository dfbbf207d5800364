"""Which runs on the gate's suites count, and which checkpoints have answered them already. Inside a tenant.

A benchmark of ours is asked here; a run that somebody asked for earlier counts too when it asked every problem once in
the same way. A benchmark that came in from elsewhere is never asked: its newest finished run of that checkpoint counts.
"""

from django.db.models import Q

from evals.models import EvalRun, EvalState
from evals.refs import benchmark_ref
from registry.models import Checkpoint
from rl_online.gate.suites import Suite
from rl_online.models import LearningPlan
from rl_online.services.plans import suites_of

SCORER = "unit_tests"


def has_answered(checkpoint: Checkpoint, plan: LearningPlan) -> bool:
    """Whether all its answers to all suites are there; without a benchmark nothing is asked."""
    return all(is_answered(suite, str(checkpoint)) for suite in suites_of(plan))


def is_answered(suite: Suite, checkpoint: str) -> bool:
    run = run_of(suite, checkpoint)
    return run is not None and run.state == EvalState.DONE


def run_of(suite: Suite, checkpoint: str) -> EvalRun | None:
    """The run that counts for this checkpoint: one that is done, else the gate's own under way; then the newest."""
    named = benchmark_ref(suite.benchmark)
    runs = EvalRun.objects.select_related("benchmark").filter(
        benchmark__name=named.name, benchmark__version=named.version, checkpoint=checkpoint
    )
    alike = Q(
        scorer=SCORER, sampling=suite.sampling, num_problems=None, num_repeats=1, seconds_per_answer=None
    )  # fmt: skip
    here = Q(benchmark__origin="") & alike & (Q(asked_by="", state=EvalState.RUNNING) | Q(state=EvalState.DONE))
    elsewhere = ~Q(benchmark__origin="") & Q(state=EvalState.DONE)
    return runs.filter(here | elsewhere).order_by("state", "asked_by", "-started_at").first()
