"""Making benchmarks. A version is immutable once it is there: other problems are another version."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Max

from evals.models import Benchmark, Problem
from evals.scorers.scorer import ProblemSpec
from registry.errors import Conflict, InvalidInput
from registry.tenancy import tenant

MAX_ID = 128


def create_benchmark(
    project_id: UUID,
    name: str,
    problems: Sequence[ProblemSpec],
    *,
    version: int | None = None,
    description: str = "",
    is_held_out: bool = True,
    sampling: Mapping[str, Any] | None = None,
    references: Mapping[str, str] | None = None,
) -> Benchmark:
    """Store a problem set. The same set under the same version is found again; another one is a Conflict.

    `sampling` is what a run uses that is not told otherwise; `references` are right answers by problem id. `version`
    None finds the version that holds exactly these problems, or takes the next free one. Raises InvalidInput.
    """
    _check(name, problems)
    digest = digest_of(problems, is_held_out=is_held_out)
    with tenant(project_id):
        same_name = Benchmark.objects.filter(name=name)
        existing = same_name.filter(digest=digest) if version is None else same_name.filter(version=version)
        if found := existing.first():
            if found.digest != digest:
                raise Conflict(f"{found} exists with other problems; give them another version", field="version")
            return found
        number = version or (same_name.aggregate(latest=Max("version"))["latest"] or 0) + 1
        benchmark = Benchmark.objects.create(
            name=name, version=number, description=description, is_held_out=is_held_out, sampling=dict(sampling or {})
        )
        known = references or {}
        Problem.objects.bulk_create((_row(benchmark, one, known.get(one.id)) for one in problems), batch_size=1000)
        benchmark.digest = digest  # from here on the database refuses changes to its problems
        benchmark.save(update_fields=["digest"])
        return benchmark


def digest_of(problems: Sequence[ProblemSpec], *, is_held_out: bool) -> str:
    """What makes two problem sets the same, whatever their order."""
    rows = sorted(
        json.dumps(
            [problem.id, problem.prompt, problem.messages, problem.tests, dict(problem.slices)],
            sort_keys=True, ensure_ascii=False,
        )
        for problem in problems
    )  # fmt: skip
    return hashlib.sha256("\n".join([str(is_held_out), *rows]).encode()).hexdigest()


def check_name(name: str) -> None:
    """Raises InvalidInput."""
    if not name.strip() or "/" in name or "@" in name or len(name) > 100:
        raise InvalidInput(f"found {name[:120]!r}; a name has 1 to 100 characters and no / or @", field="name")


def _check(name: str, problems: Sequence[ProblemSpec]) -> None:
    check_name(name)
    if not problems:
        raise InvalidInput("a benchmark needs at least one problem", field="problems")
    repeated = [key for key, times in Counter(problem.id for problem in problems).items() if times > 1]
    if repeated:
        raise InvalidInput(f"these ids occur more than once: {', '.join(sorted(repeated)[:5])}", field="problems")
    for problem in problems:
        if not problem.id or len(problem.id) > MAX_ID:
            raise InvalidInput(f"problem id {problem.id[:50]!r}: 1 to {MAX_ID} characters", field="problems")
        if (problem.prompt is None) == (problem.messages is None):
            raise InvalidInput(f"problem {problem.id}: give exactly one of prompt and messages", field="problems")


def _row(benchmark: Benchmark, problem: ProblemSpec, reference: str | None) -> Problem:
    return Problem(
        benchmark=benchmark,
        problem_id=problem.id,
        prompt=problem.prompt,
        messages=problem.messages,
        tests=dict(problem.tests) if problem.tests is not None else None,
        slices=dict(problem.slices),
        reference=reference,
    )
