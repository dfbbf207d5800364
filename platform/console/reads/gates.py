"""A gate report with what each of its numbers was counted from: problems, answers, runs, the judge's pairs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.core.paginator import Page, Paginator

from console.charts.power import MOST_CURVES, PowerCurve
from evals.models import Comparison, EvalRun, Problem, Score
from registry.errors import NotFound
from registry.models import AuditEvent
from rl_online.gate.parts import belongs
from rl_online.models import GateReport, LearningPlan
from rl_online.services.answers import SCORER

PAGE = 50
SHOWN = ("better", "worse", "same", "unscored")


class Answer(NamedTuple):
    """Of a score: its key and value."""

    score: int
    value: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One problem answered by both sides of a finding; without its texts, so that thousands can be counted."""

    problem: int  # keys
    new: Answer | None  # of the candidate
    old: Answer | None

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


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownPair:
    """A pair with its texts."""

    problem: Problem
    new: Score | None
    old: Score | None
    difference: float | None
    verdict: str

    @property
    def sides(self) -> tuple[tuple[str, Score | None], tuple[str, Score | None]]:
        return ("candidate", self.new), ("baseline", self.old)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteRuns:
    """One suite of a report, with the run of each checkpoint on it."""

    benchmark: str
    origin: str  # where its results came from; "": asked here
    scorer: str
    sampling: Mapping[str, Any]
    runs: Mapping[str, EvalRun]


def suites_behind(report: GateReport) -> list[SuiteRuns]:
    """Reports from before there were several, or before runs were named, find theirs by what they measured."""
    kept = report.evidence.get("suites") or [report.evidence]
    if not any(one.get("runs") for one in kept):
        return _suite_by_plan(report)
    ids = [UUID(text) for one in kept for text in one.get("runs", {}).values()]
    runs = {str(run.id): run for run in EvalRun.objects.select_related("benchmark").filter(id__in=ids)}
    return [
        SuiteRuns(
            benchmark=one.get("benchmark") or "",
            origin=one.get("origin", ""),
            scorer=one.get("scorer", SCORER),
            sampling=one.get("sampling", {}),
            runs={name: runs[key] for name, key in one.get("runs", {}).items() if key in runs},
        )
        for one in kept
    ]


def _suite_by_plan(report: GateReport) -> list[SuiteRuns]:
    plan = LearningPlan.objects.filter(policy=report.checkpoint.policy).first()
    if plan is None or not plan.gate_benchmark or not findings(report):
        return []
    name, _, version = plan.gate_benchmark.rpartition("@")
    asked = {str(report.checkpoint), *(finding["checkpoint"] for finding in findings(report))}
    found = EvalRun.objects.select_related("benchmark").filter(
        benchmark__name=name, benchmark__version=version, checkpoint__in=asked, scorer=SCORER
    )
    runs = {str(one.checkpoint): one for one in found.order_by("started_at")}
    return [SuiteRuns(benchmark=plan.gate_benchmark, origin="", scorer=SCORER, sampling={}, runs=runs)]


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
    """Every problem the finding was asked on, by id."""
    suites = suites_behind(report)
    suite = next((one for one in suites if one.benchmark == finding.get("suite")), suites[0] if suites else None)
    runs = suite.runs if suite else {}
    new, old = runs.get(str(report.checkpoint)), runs.get(finding["checkpoint"])
    asked = new or old
    if asked is None:
        return []
    rows = Problem.objects.filter(benchmark=asked.benchmark_id).order_by("problem_id").values_list("pk", "slices")
    new_answers, old_answers = _answers(new), _answers(old)
    return [
        Pair(problem=key, new=new_answers.get(key), old=old_answers.get(key))
        for key, slices in rows
        if belongs(slices, finding["half"])
    ]


def _answers(run: EvalRun | None) -> dict[int, Answer]:
    """By the key of the problem."""
    if run is None:
        return {}
    rows = Score.objects.filter(run=run, scorer=run.scorer, repeat=0, problem__isnull=False)
    return {problem: Answer(key, value) for problem, key, value in rows.values_list("problem_id", "pk", "value")}


def page_of_pairs(found: list[Pair], verdict: str | None, number: str | None) -> Page:
    """One page of ShownPairs."""
    chosen = [pair for pair in found if verdict in (None, "", pair.verdict)]
    page = Paginator(chosen, PAGE).get_page(number)
    on_page = list(page.object_list)
    problems = Problem.objects.defer("tests", "reference").in_bulk([pair.problem for pair in on_page])
    answers = [answer.score for pair in on_page for answer in (pair.new, pair.old) if answer]
    scores = Score.objects.defer("raw", "parts").in_bulk(answers)
    page.object_list = [
        ShownPair(
            problem=problems[pair.problem],
            new=scores.get(pair.new.score) if pair.new else None,
            old=scores.get(pair.old.score) if pair.old else None,
            difference=pair.difference,
            verdict=pair.verdict,
        )
        for pair in on_page
        if pair.problem in problems
    ]
    return page


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


def titled(finding: Mapping[str, Any]) -> str:
    """What reasons call its part; reports from before there were several suites have but the half."""
    return str(finding.get("title") or finding["half"])


def curves(report: GateReport) -> list[PowerCurve]:
    """What each suite can see beside the serving checkpoint; of an older report, what each half can."""
    reach = [one for one in report.evidence.get("reach", []) if one["role"] == "serving"]
    if reach:
        first = report.evidence.get("benchmark") or "the suite"
        return [
            PowerCurve(name=one["suite"] or first, sd=one["sd"], n=one["num_common"])
            for one in reach[:MOST_CURVES]
            if one["sd"]
        ]
    return [
        PowerCurve(name=titled(one), sd=one["difference"]["se"] * math.sqrt(one["num_common"]), n=one["num_common"])
        for one in findings(report)[: 3 * MOST_CURVES]
        if one["role"] == "serving" and one.get("difference") and one["difference"].get("se")
    ][:MOST_CURVES]
