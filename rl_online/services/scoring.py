"""Live turns that name a benchmark problem are scored by its tests, and triage sees label and score side by side.

What the score weighs in the reward is the RewardSpec's word; in the demo it weighs nothing and is only shown.
"""

import logging
from collections.abc import Sequence
from uuid import UUID

from evals.scorers.registry import SCORERS
from evals.services.turns import TURN_SCORERS, score_turn
from feedback.models import Turn
from feedback.services.triage import triage_turns
from jobs import crash
from jobs.services import ClaimedJob, enqueue
from registry.errors import InvalidInput, NotFound
from registry.tenancy import tenant
from rl_online.collecting import LIVE_SOURCES, payloads_of, scores_of
from rl_online.models import LearningPlan
from rl_online.rewards.composite import parse_reward_spec

log = logging.getLogger(__name__)

SCORE_JOB = "rl_online.score_turn"
TURNS_PER_JOB = 50


def ask_for_scores(project_id: UUID, turn_pks: Sequence[int]) -> None:
    """A job for those of the turns that name a problem; in the caller's transaction and tenant."""
    linked = list(
        Turn.objects.filter(pk__in=turn_pks, problem__isnull=False, source__in=LIVE_SOURCES)
        .order_by("pk")
        .values_list("turn_id", flat=True)
    )
    for start in range(0, len(linked), TURNS_PER_JOB):
        enqueue(SCORE_JOB, project_id=project_id, payload={"turns": linked[start : start + TURNS_PER_JOB]})


def wanted_scorers() -> list[str]:
    """Those that every turn gets, then those that a recipe in force asks for. Inside a tenant."""
    bodies = LearningPlan.objects.values_list("reward_spec__body", flat=True)
    asked = {name for body in bodies for name in parse_reward_spec(body).asked}
    return [*TURN_SCORERS, *sorted((asked & SCORERS.keys()) - set(TURN_SCORERS))]


def score_job(job: ClaimedJob) -> None:
    """Score the turns one by one, no transaction open; scores that exist are kept."""
    project_id = job.project_id
    assert project_id is not None
    with tenant(project_id):
        turns = list(Turn.objects.filter(turn_id__in=job.payload["turns"]).order_by("pk"))
        payloads = payloads_of(turns)
        scorers = wanted_scorers()
    for turn in turns:
        payload = payloads.get(turn.turn_id)
        if payload is None or turn.problem is None:
            continue
        try:
            score_turn(project_id, turn.turn_id, turn.problem, payload.completion, scorers=scorers)
        except (InvalidInput, NotFound) as error:
            log.info("turn %s is not scored: %s", turn.turn_id, error.message)
        job.renew()
    crash.point("task.rl_online.score_turn.mid")
    with job.effect(), tenant(project_id):
        turns = list(Turn.objects.filter(turn_id__in=job.payload["turns"]).order_by("pk"))
        triage_turns(project_id, turns, scores=scores_of([turn.turn_id for turn in turns]))
