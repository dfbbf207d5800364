"""Several answers to each problem of a run: pass@k, pass^k, problems that flip, and answers that ran out of a budget.

Inside a tenant. The problem is the unit; families are clusters where that makes an interval wider.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import connection

from evals.models import EvalRun
from evals.statistics.estimate import Estimate
from evals.statistics.means import estimate_mean
from evals.statistics.pass_at import Tries, pass_at_k, pass_hat_k
from evals.statistics.proportions import wilson, wilson_clustered
from registry.tenancy import current_project_id

KS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # and the number of repeats itself
MOST_FLAKY = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """One problem, over the repeats of a run."""

    key: int  # of the Problem
    problem_id: str
    family: str | None
    right: int  # answers with the full score
    scored: int
    answered: int  # scored or not
    late: int  # gave up because they took longer than they may

    @property
    def is_flaky(self) -> bool:
        """Right in one repeat and wrong in another: what it says of one answer is luck."""
        return 0 < self.right < self.scored


@dataclass(frozen=True, kw_only=True, slots=True)
class AtK:
    """Of k answers at least one right, and all right."""

    k: int
    any_right: Estimate
    all_right: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeats:
    num_repeats: int  # most answers that a problem has
    at: tuple[AtK, ...]
    flaky: tuple[Tried, ...]  # at most MOST_FLAKY, the most even first
    num_flaky: int
    num_repeated: int  # problems with two scored answers or more: those that could have flipped


@dataclass(frozen=True, kw_only=True, slots=True)
class OverBudget:
    """Answers that ran out of what they may take."""

    tokens: int  # cut off, and scored as far as they came
    tokens_right: int  # of those, with the full score all the same
    seconds: int  # given up: unscored
    strict: Estimate | None  # the mean if those given up were wrong; None: none was given up, or scores are graded


def tries_of(run: EvalRun) -> list[Tried] | None:
    """By the scorer that stands for the run, in order of the problems; None where scores are not all right or wrong."""
    return tries_of_runs([run])[run.pk]


def tries_of_runs(runs: Sequence[EvalRun]) -> dict[UUID, list[Tried] | None]:
    """As `tries_of`, in one query."""
    if not runs:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT s.run_id, p.id, p.problem_id, p.slices->>'family', count(*) FILTER (WHERE s.value = 1),
              count(s.value), count(*), count(*) FILTER (WHERE s.parts->>'budget' = 'seconds'),
              coalesce(bool_and(s.value IN (0, 1)), true)
            FROM evals_score s JOIN evals_evalrun r ON r.id = s.run_id AND r.scorer = s.scorer
            JOIN evals_problem p ON p.id = s.problem_id
            WHERE s.project_id = %s AND s.run_id = ANY(%s) GROUP BY s.run_id, p.id ORDER BY p.id
            """,
            [current_project_id(), [run.pk for run in runs]],
        )
        rows = cursor.fetchall()
    graded = {row[0] for row in rows if not row[8]}
    names = ("key", "problem_id", "family", "right", "scored", "answered", "late")
    found: dict[UUID, list[Tried] | None] = {run.pk: None if run.pk in graded else [] for run in runs}
    for row in rows:
        tried = found[row[0]]
        if tried is not None:
            tried.append(Tried(**dict(zip(names, row[1:8], strict=True))))
    return found


def repeats_of(tried: Sequence[Tried]) -> Repeats | None:
    """Pure. None where no problem was asked twice."""
    most = max((one.answered for one in tried), default=0)
    if most < 2:
        return None
    flaky = sorted((one for one in tried if one.is_flaky), key=lambda one: abs(one.right / one.scored - 0.5))
    return Repeats(
        num_repeats=most,
        at=tuple(at_k(tried, k) for k in sorted({*(k for k in KS if k < most), most})),
        flaky=tuple(flaky[:MOST_FLAKY]),
        num_flaky=len(flaky),
        num_repeated=sum(one.scored > 1 for one in tried),
    )


def over_budget(run: EvalRun, tried: Sequence[Tried] | None) -> OverBudget:
    """One query; `tried` as `tries_of` gave it."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*) FILTER (WHERE parts->>'budget' = 'tokens'),
              count(*) FILTER (WHERE parts->>'budget' = 'tokens' AND value = 1),
              count(*) FILTER (WHERE parts->>'budget' = 'seconds')
            FROM evals_score WHERE project_id = %s AND run_id = %s AND scorer = %s
            """,
            [current_project_id(), run.pk, run.scorer],
        )
        tokens, tokens_right, seconds = cursor.fetchone()
    strict = _strict(tried) if seconds and tried is not None else None
    return OverBudget(tokens=tokens, tokens_right=tokens_right, seconds=seconds, strict=strict)


def _strict(tried: Sequence[Tried]) -> Estimate:
    shares = [one.right / asked if (asked := one.scored + one.late) else None for one in tried]
    known = [share for share in shares if share is not None]
    if all(share in (0, 1) for share in known):
        return wilson(sum(map(int, known)), len(known)).estimate(num_asked=len(shares))
    return _within(estimate_mean(shares))


def at_k(tried: Sequence[Tried], k: int) -> AtK:
    """Shares, with Wilson's interval, where every problem is 0 or 1; else means."""
    enough = [one for one in tried if one.scored >= k]
    any_right = all_right = None
    if all(one.right == 0 or one.scored - one.right < k for one in enough):
        any_right = _share([one.right > 0 for one in enough], enough, num_asked=len(tried))
    if all(one.right < k or one.right == one.scored for one in enough):
        all_right = _share([one.right == one.scored for one in enough], enough, num_asked=len(tried))
    return AtK(
        k=k,
        any_right=any_right or _mean(pass_at_k, tried, k),
        all_right=all_right or _mean(pass_hat_k, tried, k),
    )


def _share(outcomes: Sequence[bool], tried: Sequence[Tried], *, num_asked: int) -> Estimate:
    plain = wilson(sum(outcomes), len(outcomes))
    if all(one.family is None for one in tried):
        return plain.estimate(num_asked=num_asked)
    clustered = wilson_clustered(outcomes, [one.family for one in tried])
    return (clustered if clustered.low < plain.low else plain).estimate(num_asked=num_asked)


def _mean(measure: Callable[..., Estimate], tried: Sequence[Tried], k: int) -> Estimate:
    tries: list[Tries] = [(one.right, one.scored) for one in tried]
    plain = measure(tries, k)
    if plain.low is None or all(one.family is None for one in tried):
        return _within(plain)
    families: list[Hashable] = [one.family if one.family is not None else ("alone", one.key) for one in tried]
    clustered = measure(tries, k, clusters=families)
    return _within(clustered if clustered.low is not None and clustered.low < plain.low else plain)


def _within(mean: Estimate) -> Estimate:
    """Cut where all scores lie."""
    if mean.low is None or mean.high is None:
        return mean
    return replace(mean, low=max(0.0, mean.low), high=min(1.0, mean.high))
