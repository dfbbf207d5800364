"""Benchmarks that are still being collected. Inside a tenant.

A draft is a version without a digest: problems come and go. Closing it gives it the digest, and from then on it is as
immutable as any other; what is collected later goes into the next version.
"""

from django.db import IntegrityError, transaction
from django.db.models import Count, Max

from evals.models import Benchmark, Problem
from evals.scorers.scorer import ProblemSpec
from evals.selectors import spec_of
from evals.services.benchmarks import check_name, digest_of
from registry.errors import Conflict, InvalidInput
from registry.services import audit


def open_draft(name: str, *, description: str = "", is_held_out: bool = True) -> Benchmark:
    """The draft of that name; a new one under the next version where all are closed. Raises InvalidInput."""
    check_name(name)
    draft = find_draft(name)
    if draft is not None:
        return draft
    latest = Benchmark.objects.filter(name=name).aggregate(latest=Max("version"))["latest"] or 0
    try:
        with transaction.atomic():
            return Benchmark.objects.create(
                name=name, version=latest + 1, description=description, is_held_out=is_held_out
            )
    except IntegrityError:  # somebody else opened it at the same moment
        return Benchmark.objects.get(name=name, version=latest + 1)


def find_draft(name: str) -> Benchmark | None:
    return Benchmark.objects.filter(name=name, digest="", origin="").order_by("-version").first()


def open_drafts() -> list[Benchmark]:
    """By name, with `num_problems`."""
    drafts = Benchmark.objects.filter(digest="", origin="").annotate(num_problems=Count("problems"))
    return list(drafts.order_by("name", "-version"))


def add_problem(draft: Benchmark, spec: ProblemSpec, *, reference: str | None = None) -> tuple[Problem, bool]:
    """(the problem, whether it is new). One of the same id, in any version of this benchmark, is found instead."""
    existing = _same(draft, spec.id)
    if existing is not None:
        return existing, False
    try:
        with transaction.atomic():
            problem = Problem.objects.create(
                benchmark=draft,
                problem_id=spec.id,
                prompt=spec.prompt,
                messages=spec.messages,
                tests=dict(spec.tests) if spec.tests is not None else None,
                slices=dict(spec.slices),
                reference=reference,
            )
    except IntegrityError:
        existing = _same(draft, spec.id)
        if existing is None:
            raise
        return existing, False
    return problem, True


def remove_problem(problem: Problem) -> bool:
    """Take a problem out of its draft; False when the version is closed, which nothing leaves."""
    deleted, _ = Problem.objects.filter(pk=problem.pk, benchmark__digest="").delete()
    return deleted > 0


def close_draft(name: str, *, actor: str) -> Benchmark:
    """Freeze the draft's problems. Raises InvalidInput for an empty one, Conflict when there is no draft."""
    draft = Benchmark.objects.select_for_update().filter(name=name, digest="", origin="").order_by("-version").first()
    if draft is None:
        raise Conflict(f"{name} has no draft; a new one opens with the next problem")
    specs = [spec_of(problem) for problem in draft.problems.all()]
    if not specs:
        raise InvalidInput(f"{draft} has no problem yet", field="problems")
    draft.digest = digest_of(specs, is_held_out=draft.is_held_out)
    draft.save(update_fields=["digest"])
    audit("close", "benchmark", draft, actor=actor, after={"problems": len(specs), "digest": draft.digest})
    return draft


def _same(draft: Benchmark, problem_id: str) -> Problem | None:
    found = Problem.objects.select_related("benchmark").filter(benchmark__name=draft.name, problem_id=problem_id)
    return found.order_by("benchmark__version").first()
