"""A judge's vote, for a plan whose limits ask for one (`judged`): it compares before the gate decides.

It judges in slices of a worker's time until the plan's number of pairs is judged, or no further one can be had. Whether
it may vote is asked last, so that what it has just said counts for and against it too. Where a budget is spent or there
is no reply, it has no vote either, and reopening asks for those pairs again.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from evals.judge_evidence import BY_JUDGE, RESULTS, beside_people, voted_on
from evals.judge_trust import trusts
from evals.judging.pairwise import PairVerdict
from evals.judging.vote import why_no_vote
from evals.models import Comparison, JudgeVersion
from evals.services.budgets import why_stopped
from evals.services.canaries import standing_of
from evals.services.judgements import num_open, report
from evals.services.judges import judges_itself
from evals.statistics.prediction_powered import prediction_powered_mean
from evals.statistics.wins import win_rate
from jobs.services import ClaimedJob, NotYet
from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.gate.evidence import JudgedWins
from rl_online.models import LearningPlan
from rl_online.services.judging import (
    LOOK_AGAIN_S,
    Sides,
    judge_for,
    judge_sides,
    not_held,
    refusal_of,
    refused,
    sides_of,
)
from rl_online.services.plans import suites_of

SLICE_S = 45.0  # of a worker's time
AT_ONCE = 40  # pairs of a slice
ASK_AGAIN_S = 30.0
NO_REPLY = "most of its pairs got no reply"


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What the gate weighs, and all that its report shows."""

    wins: JudgedWins
    shown: dict[str, Any]


def hear(job: ClaimedJob, plan: LearningPlan, *, candidate: str, serving: str, is_patient: bool) -> Heard:
    """Outside a transaction. Raises NotYet while pairs are left to judge, or, `is_patient`, while no engine holds the
    base that judges or the judge does not reply."""
    project_id = job.project_id
    assert project_id is not None
    with tenant(project_id):
        judge = judge_for(plan)
        refusal, waits_for = refusal_of(judge, candidate), not_held(judge, plan)
        sides = sides_of(suites_of(plan), candidate, serving)
        before, spent = _num_judged(judge, sides), why_stopped(judge)
    if refusal:
        return _unheard(judge, refusal)
    if waits_for and is_patient:
        raise NotYet(LOOK_AGAIN_S, f"the judge waits until the engine holds {waits_for}")
    if sides and not waits_for and not spent and before < plan.judged_pairs:
        job.renew(SLICE_S + settings.JOB_LEASE_S)
        limit = min(AT_ONCE, plan.judged_pairs - before)
        judge_sides(project_id, judge, sides, limit=limit, timeout_s=SLICE_S)
        _go_on(project_id, judge, sides, before=before, wanted=plan.judged_pairs)
    with tenant(project_id):
        missed = _why_missed(judge, sides, waits_for=waits_for, wanted=plan.judged_pairs)
        heard = _heard(judge, sides, candidate=candidate, serving=serving, missed=missed)
    if heard.wins.no_vote == NO_REPLY and is_patient:
        raise NotYet(ASK_AGAIN_S, f"asks the judge again: {NO_REPLY}")
    return heard


def _go_on(project_id: UUID, judge: JudgeVersion, sides: Sequence[Sides], *, before: int, wanted: int) -> None:
    """Another slice where this one got further and did not reach the end."""
    with tenant(project_id):
        after = _num_judged(judge, sides)
    if before < after < wanted:
        raise NotYet(0, f"{after} of {wanted} pairs are judged")


def _why_missed(judge: JudgeVersion, sides: Sequence[Sides], *, waits_for: Checkpoint | None, wanted: int) -> str:
    """Why pairs that it could judge are not judged, where so few are no vote; empty where there is none to miss."""
    num_judged = _num_judged(judge, sides)
    num_missing = min(wanted - num_judged, sum(num_open(left, right, judge) for left, right in sides))
    if num_missing <= 0:
        return ""
    if spent := why_stopped(judge):
        return spent
    if num_judged >= num_missing:
        return ""
    return f"no engine holds {waits_for}" if waits_for else NO_REPLY


def _num_judged(judge: JudgeVersion, sides: Sequence[Sides]) -> int:
    """Pairs it has replied to, readably or not."""
    return int(_judged(judge, sides).exclude(verdict=PairVerdict.ERROR).count())


def _judged(judge: JudgeVersion, sides: Sequence[Sides]) -> Any:
    """On the problems of these suites alone, whatever else it said about the two."""
    found = Comparison.objects.filter(judge=judge, by=BY_JUDGE)
    if not sides:
        return found.none()
    left, right = sides[0]
    benchmarks = [one.benchmark_id for one, _ in sides]
    return found.filter(left=left.checkpoint, right=right.checkpoint, problem__benchmark__in=benchmarks)


def _heard(judge: JudgeVersion, sides: Sequence[Sides], *, candidate: str, serving: str, missed: str) -> Heard:
    comparisons = list(_judged(judge, sides).order_by("id"))
    verdicts = [PairVerdict(one.verdict) for one in comparisons]
    rate = win_rate([RESULTS.get(verdict) for verdict in verdicts])
    no_vote = why_no_vote(
        trusts([judge])[judge.pk],
        canaries=standing_of(judge),
        judges_itself=judges_itself(judge, candidate, serving),
    )
    no_vote = no_vote or missed
    counted = {
        "num_pairs": len(verdicts), "wins": rate.wins, "ties": rate.ties, "losses": rate.losses,
        "invalid": verdicts.count(PairVerdict.INVALID), "errors": verdicts.count(PairVerdict.ERROR),
        "win_rate": rate.rate, "low": rate.low, "high": rate.high,
        "corrected": _corrected(judge, comparisons), "no_vote": no_vote, "was_asked_to_vote": True,
    }  # fmt: skip
    wins = JudgedWins(
        judge=str(judge), num_decided=rate.n, num_undecided=rate.undecided,
        rate=rate.rate, low=rate.low, high=rate.high, no_vote=no_vote,
    )  # fmt: skip
    return Heard(wins=wins, shown=report(judge, left=candidate, right=serving) | counted)


def _unheard(judge: JudgeVersion, reason: str) -> Heard:
    nothing = JudgedWins(
        judge=str(judge), num_decided=0, num_undecided=0, rate=None, low=None, high=None, no_vote=reason
    )
    return Heard(wins=nothing, shown=refused(judge, reason) | {"no_vote": reason, "was_asked_to_vote": True})


def _corrected(judge: JudgeVersion, comparisons: Sequence[Comparison]) -> dict[str, Any] | None:
    """The win rate by people's measure, from those pairs that people voted on too; None without any."""
    said = [
        (RESULTS[verdict], RESULTS[vote])
        for verdict, vote in beside_people(comparisons).get(judge.pk, [])
        if verdict in RESULTS and vote in RESULTS
    ]
    if not said:
        return None
    voted = voted_on(comparisons)
    alone = [RESULTS.get(PairVerdict(one.verdict)) for one in comparisons if one.pk not in voted]
    found = prediction_powered_mean(
        [vote for _, vote in said], [verdict for verdict, _ in said], [value for value in alone if value is not None]
    )
    return asdict(found)
