"""Both sides' answers to one problem, with all that was measured about them. Inside a tenant."""

from dataclasses import dataclass, field

from django.db.models import Q

from evals.comparing.names import Name
from evals.models import EvalState, Problem, Score
from registry.errors import NotFound


@dataclass(frozen=True, kw_only=True, slots=True)
class SideBySide:
    """Both sides' answers to one problem."""

    problem: Problem  # with its benchmark
    a: list[Score] = field(default_factory=list)  # by scorer and repeat
    b: list[Score] = field(default_factory=list)


def find_problem(key: int) -> Problem:
    """With its benchmark. Raises NotFound."""
    problem = Problem.objects.select_related("benchmark").filter(pk=key).first()
    if problem is None:
        raise NotFound("no such problem")
    return problem


def side_by_side(problem: Problem, a: Name, b: Name) -> SideBySide:
    """The newest answers of both sides to one problem, at most 20 a side. One query."""
    either = Q(**{f"run__{a.column}": a.text}) | Q(**{f"run__{b.column}": b.text})
    scores = (
        Score.objects.filter(either, problem=problem)
        .exclude(run__state__in=(EvalState.FAILED, EvalState.CANCELLED))
        .select_related("run")
        .order_by("-run__started_at", "scorer", "repeat")[:40]
    )
    found = SideBySide(problem=problem)
    for score in scores:
        for name, answers in ((a, found.a), (b, found.b)):
            if getattr(score.run, name.column) == name.text and len(answers) < 20:
                answers.append(score)
    return found
