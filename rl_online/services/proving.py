"""Job `rl_online.prove`: a candidate answers the problems of the gate's suites, and the gate decides.

Answers are kept by evals as EvalRuns: those of the serving checkpoint and of the first are asked once and used again.
The work is cut into slices that fit a worker's time limit; killed in between, what is answered is not asked again.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from evals import selectors as evals_selectors
from evals.models import Benchmark, EvalRun, EvalState
from evals.refs import benchmark_ref
from evals.services.completers import GatewayCompleter
from evals.services.runs import run_benchmark
from feedback.conduct import asks_back
from jobs import crash
from jobs.services import ClaimedJob, NotYet, enqueue
from registry.models import Checkpoint, Deployment
from registry.services import LOOP
from registry.tenancy import tenant
from rl_online.gate.decision import Decision, Kind, decide
from rl_online.gate.evidence import Arm, Evidence, Guard, Half
from rl_online.gate.limits import Limits
from rl_online.gate.parts import parts_of
from rl_online.gate.suites import Suite
from rl_online.models import GateReport, LearningPlan, Promotion, UpdateRun, UpdateState
from rl_online.services import notices
from rl_online.services.answers import SCORER, has_answered, run_of
from rl_online.services.canaries import start_canary
from rl_online.services.forgetting import forgetting_of
from rl_online.services.holdings import first_checkpoint, is_held, load_error
from rl_online.services.judging import JUDGE_JOB
from rl_online.services.plans import gate_limits, suites_of
from rl_online.services.promotion import promote
from rl_online.services.reopening import opened_at
from rl_online.services.runs import PROVE_JOB, superseded
from rl_online.services.voting import hear

log = logging.getLogger(__name__)

SLICE_S = 45.0  # of a worker's time; Celery ends a task at 90 s
LOOK_AGAIN_S = 2.0  # an engine that says it holds more wakes the job before (services.engines)
FETCH = "fetch"  # the stage between registering a candidate and the first question to it
PATIENCE = timedelta(minutes=15)  # for an engine to hold the candidate
RELATIVE = ("output tokens", "latency ms")  # guards whose limit is a part of the serving checkpoint's mean
FACTS = {"questions back": asks_back}  # guards that are read off an answer's text
RETRY_FOR = timedelta(minutes=3)  # answers that could not be had are asked again for so long


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What has to be measured, and against what."""

    run: UpdateRun
    candidate: Checkpoint
    arms: dict[str, Checkpoint]  # role -> baseline; the first checkpoint only where it is another one
    plan: LearningPlan
    suites: list[Suite]
    limits: Limits
    rounds: int
    opened_at: datetime  # when it was first asked, or asked anew by a person

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [self.candidate, *self.arms.values()]


def prove_job(job: ClaimedJob) -> None:
    assert job.project_id is not None
    with tenant(job.project_id):
        proof = proof_of(UUID(job.payload["run"]))
        refusal = proof and _refusal(proof)
        missing = [] if proof is None or refusal else _not_held(proof)
    if proof is None:
        return
    if missing:
        raise NotYet(LOOK_AGAIN_S, f"waits until the engine holds {', '.join(map(str, missing))}")
    if refusal:
        decision = refused(proof, refusal)
    else:
        with tenant(job.project_id):
            _note_fetched(proof.run)
        decision = decide(_with_judge(job, proof, measure(job, proof)), proof.limits)
    crash.point("task.rl_online.prove.mid")
    with job.effect(), tenant(job.project_id):
        carry_out(proof.run.id, decision)


def proof_of(run_id: UUID) -> Proof | None:
    """None when the run is not to be proved (any more)."""
    run = UpdateRun.objects.select_related("checkpoint__policy", "checkpoint__parent__policy", "policy").get(id=run_id)
    if run.state != UpdateState.PROVING or run.checkpoint is None:
        return None
    plan = LearningPlan.objects.select_related("gate_judge").get(policy=run.policy)
    serving = Deployment.objects.select_related("checkpoint__policy").get(policy=run.policy, alias="default").checkpoint
    first = first_checkpoint(run.policy_id)
    opened = opened_at(run.checkpoint)
    return Proof(
        run=run,
        candidate=run.checkpoint,
        arms={"serving": serving} | ({"first": first} if first.id != serving.id else {}),
        plan=plan,
        suites=suites_of(plan),
        limits=gate_limits(plan),
        rounds=1 + GateReport.objects.filter(run=run, decision=Kind.EXTEND, created_at__gte=opened).count(),
        opened_at=opened,
    )


Answers = Mapping[str, Mapping[str, EvalRun]]  # suite -> checkpoint -> its run


def measure(job: ClaimedJob, proof: Proof) -> Evidence:
    """Every answer the decision needs. Raises NotYet when this slice of time is over before they are all there."""
    deadline = time.monotonic() + SLICE_S
    answers: Answers = {
        suite.benchmark: {str(one): _answers_of(job, proof, suite, one, deadline) for one in proof.checkpoints}
        for suite in proof.suites
    }
    if proof.limits.judged is not None and time.monotonic() > deadline - SLICE_S / 2:
        raise NotYet(0, "the judge is asked next")
    assert job.project_id is not None
    with tenant(job.project_id):
        return evidence_of(proof, answers)


def evidence_of(proof: Proof, answers: Answers) -> Evidence:
    """The scores, by suite, part of it (its halves, and what the limits name) and problem."""
    halves = [half for suite in proof.suites for half in _halves(proof, suite.benchmark, answers[suite.benchmark])]
    runs = [run for by_checkpoint in answers.values() for run in by_checkpoint.values()]
    return Evidence(
        candidate=str(proof.candidate),
        halves=tuple(halves),
        suites=tuple(suite.benchmark for suite in proof.suites),
        rounds=proof.rounds,
        guards=_guards(proof, answers),
        forgetting=forgetting_of(proof.candidate),
        refusals=_refusals_in(runs),
    )


def _halves(proof: Proof, suite: str, runs: Mapping[str, EvalRun]) -> list[Half]:
    problems = evals_selectors.problems(runs[str(proof.candidate)].benchmark)
    scores = {name: evals_selectors.scores(run) for name, run in runs.items()}
    return [
        Half(
            name=part.name,
            suite=suite,
            families=part.families,
            candidate={key: scores[str(proof.candidate)].get(key) for key in part.families},
            baselines=tuple(
                Arm(role=role, checkpoint=str(arm), scores={key: scores[str(arm)].get(key) for key in part.families})
                for role, arm in proof.arms.items()
            ),
        )
        for part in parts_of(suite, problems, proof.limits.named)
    ]


def _with_judge(job: ClaimedJob, proof: Proof, evidence: Evidence) -> Evidence:
    """A judge is heard before the decision only where the limits ask for its vote."""
    if proof.limits.judged is None:
        return evidence
    is_patient = timezone.now() - proof.opened_at < PATIENCE
    names = {"candidate": str(proof.candidate), "serving": str(proof.arms["serving"])}
    heard = hear(job, proof.plan, **names, is_patient=is_patient)
    return replace(evidence, wins=heard.wins, judge=heard.shown)


def _guards(proof: Proof, answers: Answers) -> tuple[Guard, ...]:
    """Over the problems of all suites together."""
    new = _side_effects({suite: runs[str(proof.candidate)] for suite, runs in answers.items()})
    old = _side_effects({suite: runs[str(proof.arms["serving"])] for suite, runs in answers.items()})
    return tuple(
        Guard(name=name, candidate=new[name], serving=old[name], relative=name in RELATIVE)
        for name in new
        if name in old
    )


def _side_effects(runs: Mapping[str, EvalRun]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for suite, run in runs.items():
        for name, values in evals_selectors.side_effects(run, facts=FACTS).items():
            found.setdefault(name, {}).update({f"{suite}/{key}": value for key, value in values.items()})
    return found


def _refusals_in(runs: Iterable[EvalRun]) -> tuple[str, ...]:
    return tuple(
        f"{num} answers of {run.checkpoint} are refused: {said}"
        for run in runs
        for said, num in evals_selectors.refusals(run).items()
    )


def carry_out(run_id: UUID, decision: Decision) -> GateReport | None:
    """Write the decision and do what it says, unless the line has moved meanwhile; then the candidate is held."""
    run = (
        UpdateRun.objects.select_for_update(of=("self",))
        .select_related("checkpoint__policy", "checkpoint__parent__policy", "policy", "parent__policy")
        .get(id=run_id)
    )
    if run.state != UpdateState.PROVING or run.checkpoint is None:
        return None
    Deployment.objects.select_for_update().get(policy=run.policy, alias="default")
    kind, reasons = decision.kind, list(decision.reasons)
    if moved := superseded(run):
        kind, reasons = Kind.HOLD, [moved, *reasons]
    report = GateReport.objects.create(
        checkpoint=run.checkpoint,
        run=run,
        decision=kind,
        reasons=reasons,
        evidence=decision.to_json()["evidence"] | _sources(run, decision),
        judge=dict(decision.judge or {}),
    )
    if kind is Kind.EXTEND:
        key = f"{run.id}:{decision.rounds + 1}"
        enqueue(PROVE_JOB, project_id=run.project_id, payload={"run": str(run.id)}, key=key)
        return report
    notices.tell_decided(report)
    _end_proof(run, kind)
    if decision.findings and decision.judge is None and LearningPlan.objects.get(policy=run.policy).judged_pairs:
        payload = {"report": report.id, "policy": str(run.policy_id)}
        enqueue(JUDGE_JOB, project_id=run.project_id, payload=payload, key=str(report.id))
    return report


def _sources(run: UpdateRun, decision: Decision) -> dict[str, Any]:
    """Where every number of the report comes from: problems, sampling, and the run of each checkpoint, by suite."""
    suites = suites_of(LearningPlan.objects.get(policy=run.policy))
    if not suites:
        return {"benchmark": None}
    names = sorted({decision.candidate, *(finding.checkpoint for finding in decision.findings)})
    found = [_source(suite, names) for suite in suites]
    return {name: found[0][name] for name in ("benchmark", "scorer", "sampling", "runs")} | {"suites": found}


def _source(suite: Suite, names: Iterable[str]) -> dict[str, Any]:
    runs = {name: run for name in names if (run := run_of(suite, name)) is not None}
    imported = next((run for run in runs.values() if run.benchmark.origin), None)
    return {
        "benchmark": suite.benchmark,
        "origin": imported.benchmark.origin if imported else "",
        "scorer": imported.scorer if imported else SCORER,
        "sampling": imported.settings if imported else dict(suite.sampling),
        "runs": {name: str(run.id) for name, run in runs.items()},
    }


def refused(proof: Proof, reason: str) -> Decision:
    """A hold without evidence."""
    return Decision(
        kind=Kind.HOLD,
        reasons=(reason,),
        candidate=str(proof.candidate),
        stage=Evidence(candidate="", halves=()).stage,
        limits=proof.limits,
        findings=(),
        rounds=proof.rounds,
    )


def _refusal(proof: Proof) -> str | None:
    """Why there is nothing to measure."""
    if moved := superseded(proof.run):
        return moved
    if proof.plan.gate_benchmark is None:
        return "no gate benchmark is set, so nothing is proved; a person may promote it with a reason"
    if refusal := next((said for suite in proof.suites if (said := _cannot_be_measured(proof, suite))), None):
        return refusal
    if timezone.now() - proof.opened_at > PATIENCE and not is_held(proof.candidate):
        error = load_error(proof.candidate)
        return f"no engine held it within {PATIENCE.seconds // 60} minutes" + (f": {error}" if error else "")
    return None


def _cannot_be_measured(proof: Proof, suite: Suite) -> str | None:
    """Why this suite can tell nothing about these checkpoints, whoever is asked."""
    named = benchmark_ref(suite.benchmark)
    benchmark = Benchmark.objects.filter(name=named.name, version=named.version).first()
    if benchmark is None:
        return f"there is no benchmark {suite.benchmark}"
    if not benchmark.origin:
        return None
    runs = {str(one): run_of(suite, str(one)) for one in proof.checkpoints}
    if missing := [name for name, run in runs.items() if run is None]:
        return (
            f"{suite.benchmark} came in from elsewhere and is not asked here: it has no finished run of "
            f"{', '.join(missing)}; bring one in, then reopen the gate"
        )
    if len(scorers := sorted({run.scorer for run in runs.values() if run})) > 1:
        return f"the runs on {suite.benchmark} do not measure the same: they are scored by {' and '.join(scorers)}"
    return None


def _note_fetched(run: UpdateRun) -> None:
    """How long the engine took to hold the candidate, when its proof begins: part of publishing it, not of proving."""
    assert run.checkpoint is not None
    if FETCH not in run.timings:
        seconds = round((timezone.now() - run.checkpoint.created_at).total_seconds(), 3)
        run.timings = {**run.timings, FETCH: seconds}
        run.save(update_fields=["timings"])


def _not_held(proof: Proof) -> list[Checkpoint]:
    """Checkpoints that still have to answer and that no engine holds yet."""
    return [one for one in proof.checkpoints if not has_answered(one, proof.plan) and not is_held(one)]


def _answers_of(job: ClaimedJob, proof: Proof, suite: Suite, checkpoint: Checkpoint, deadline: float) -> EvalRun:
    """Those that are kept already, else all that are still missing."""
    assert job.project_id is not None
    with tenant(job.project_id):
        kept = run_of(suite, str(checkpoint))
    if kept is not None and kept.state == EvalState.DONE and (kept.asked_by or kept.benchmark.origin):
        return kept
    run = run_benchmark(
        job.project_id,
        benchmark=suite.benchmark,
        completer=GatewayCompleter(job.project_id, str(checkpoint), source="eval"),
        checkpoint=str(checkpoint),
        scorer=SCORER,
        sampling=suite.sampling,
        deadline=deadline,
        retry_unscored=True,
        on_progress=lambda done, total: job.renew(),
    )
    if run.state != EvalState.DONE:
        raise NotYet(0, f"{checkpoint} is still answering {suite.benchmark}")
    with tenant(job.project_id):
        summary = evals_selectors.summary(run)
    num_missing = summary.num_errors + summary.num_infra - summary.num_refused
    if num_missing and timezone.now() - proof.opened_at < RETRY_FOR:
        raise NotYet(2, f"{num_missing} answers of {checkpoint} to {suite.benchmark} are asked for again")
    return run


def _end_proof(run: UpdateRun, kind: Kind) -> None:
    assert run.checkpoint is not None
    now = timezone.now()
    timings = dict(run.timings)
    fetch_s = timings.pop(FETCH, 0.0)
    run.timings = {
        **timings,
        "publish": round(timings.get("publish", 0.0) + fetch_s, 3),
        "prove": round((now - opened_at(run.checkpoint)).total_seconds() - fetch_s, 3),
        "total": round((now - run.created_at).total_seconds(), 3),
    }
    plan = LearningPlan.objects.get(policy=run.policy)
    passed = kind is Kind.PROMOTE
    is_automatic = plan.promotion == Promotion.AUTOMATIC and not run.is_replay
    is_waiting = kind is Kind.CANARY or (passed and not is_automatic)
    run.state = UpdateState.WAITING if is_waiting else UpdateState.HELD
    run.finished_at = None if is_waiting else now
    run.save(update_fields=["timings", "state", "finished_at"])
    if kind is Kind.CANARY and not run.is_replay:
        start_canary(run.checkpoint, share=gate_limits(plan).canary_share, actor=LOOP)
    elif passed and not is_waiting:
        promote(run.checkpoint, actor=LOOP)
