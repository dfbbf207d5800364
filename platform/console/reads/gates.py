"""A gate report with what each of its numbers was counted from: problems, answers, runs, the judge's pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.paginator import Page, Paginator

from evals.models import Comparison, EvalRun, Problem, Score
from registry.errors import NotFound
from registry.models import AuditEvent
from rl_online.models import GateReport, LearningPlan
from rl_online.services.answers import SCORER

PAGE = 50
SHOWN = ("better", "worse", "same", "unscored")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One problem answered by both sides of a finding."""

    problem: Problem
    new: Score | None  # of the candidate
    old: Score | None

    @property
    def sides(self) -> tuple[tuple[str, Score | None], tuple[str, Score | None]]:
        return ("candidate", self.new), ("baseline", self.old)

    @property
    def difference(self) -> float | None:
        """None when one side has no score."""
        if self.new is None or self.old is None or self.new.value is None or self.old.value is None:
            return None
        return self.new.value - self.old.value

    @property
    def verdict(self) -> str:
        if self.difference is None:
            return "unscored"
        return "better" if self.difference > 0 else "worse" if self.difference < 0 else "same"


def find_report(number: int) -> GateReport:
    """Raises NotFound."""
    found = (
        GateReport.objects.select_related(
            "checkpoint__policy", "checkpoint__parent__policy", "run__policy", "run__batch__reward_spec"
        )
        .filter(pk=number)
        .first()
    )
    if found is None:
        raise NotFound(f"no gate report {number}")
    return found


def runs_behind(report: GateReport) -> dict[str, EvalRun]:
    """Checkpoint -> the run that asked it. Reports from before runs were named find theirs by what they measured."""
    named = report.evidence.get("runs")
    runs = EvalRun.objects.select_related("benchmark")
    if named:
        return {str(one.checkpoint): one for one in runs.filter(id__in=[UUID(text) for text in named.values()])}
    plan = LearningPlan.objects.filter(policy=report.checkpoint.policy).first()
    if plan is None or not plan.gate_benchmark:
        return {}
    name, _, version = plan.gate_benchmark.rpartition("@")
    asked = {str(report.checkpoint), *(finding["checkpoint"] for finding in findings(report))}
    found = runs.filter(benchmark__name=name, benchmark__version=version, checkpoint__in=asked, scorer=SCORER)
    return {str(one.checkpoint): one for one in found.order_by("started_at")}


def findings(report: GateReport) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report.evidence.get("findings", [])
    return found


def finding_of(report: GateReport, number: str) -> dict[str, Any]:
    """By its place in the report. Raises NotFound."""
    found = findings(report)
    if not (number.isascii() and number.isdigit() and int(number) < len(found)):
        raise NotFound(f"report {report.pk} has no finding {number[:20]!r}")
    return found[int(number)]


def pairs(report: GateReport, finding: Mapping[str, Any]) -> list[Pair]:
    """Every problem the finding was asked on, by id; a gate asks some hundreds at most."""
    runs = runs_behind(report)
    new, old = runs.get(str(report.checkpoint)), runs.get(finding["checkpoint"])
    asked = new or old
    if asked is None:
        return []
    problems = Problem.objects.filter(benchmark=asked.benchmark_id).order_by("problem_id")
    if finding["half"] != "all problems":
        problems = problems.filter(slices__half=finding["half"])
    answers: dict[tuple[UUID, int], Score] = {
        (row.run_id, row.problem_id): row
        for row in Score.objects.filter(run__in=[one for one in (new, old) if one], problem__in=problems)
        if row.run_id and row.problem_id
    }
    return [
        Pair(
            problem=problem,
            new=answers.get((new.id, problem.pk)) if new else None,
            old=answers.get((old.id, problem.pk)) if old else None,
        )
        for problem in problems
    ]


def page_of_pairs(found: list[Pair], verdict: str | None, number: str | None) -> Page:
    chosen = [pair for pair in found if verdict in (None, "", pair.verdict)]
    return Paginator(chosen, PAGE).get_page(number)


def judged_pairs(report: GateReport) -> list[Comparison]:
    """What the judge compared after this decision, newest first."""
    serving = [finding["checkpoint"] for finding in findings(report) if finding["role"] == "serving"]
    if not serving or not report.judge:
        return []
    found = Comparison.objects.filter(left=str(report.checkpoint), right=serving[0], by="judge")
    return list(found.select_related("problem", "judge").order_by("-created_at")[:50])


def acts_on(report: GateReport) -> list[AuditEvent]:
    """What people and the loop did with the candidate."""
    events = AuditEvent.objects.filter(object_kind="checkpoint", object_id=str(report.checkpoint))
    return list(events.order_by("-at", "-id")[:50])
