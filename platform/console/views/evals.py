"""Benchmark runs: the list, one run beside what its file says, a benchmark's leaderboard, a problem, uploads."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, member_required
from console.listing import PATIENCE_S, Found, show_list
from console.lists.evals import EVALS
from console.patience import TooSlow, patience
from console.reads import evals as reads
from console.reads.benchmarks import progress_of
from console.reads.run_cost import run_cost
from console.snippets import Snippet
from console.views.benchmarks import form_of
from evals import selectors_runs
from evals.importers.registry import formats
from evals.models import EvalRun, Score
from evals.selectors_repeats import over_budget, repeats_of, tries_of
from evals.services import uploads
from registry.errors import StropError
from registry.models import Role
from rl_online.services.overlaps import overlaps_of, seen_in_training
from rl_online.services.problems_from_turns import neighbours_of

COMMAND = "strop import runs logs/"
IMPORT = Snippet(name="snippet-import", caption="shell: a file, or all that a folder holds", text=COMMAND)


@require_safe
@member_required()
def evals(request: MemberRequest) -> HttpResponse:
    return show_list(request, EVALS, context=_around, template="evals/evals.html")


def _around(found: Found) -> dict[str, Any]:
    return {
        "snippet": IMPORT,
        "formats": formats(),
        "max_bytes": uploads.MAX_BYTES,
        "max_mib": uploads.MAX_BYTES // 2**20,
        **form_of(),
    }


@require_safe
@member_required()
def run(request: MemberRequest, run: UUID) -> HttpResponse:
    found = selectors_runs.find_run(run)
    measured = selectors_runs.by_scorer(found)
    scorer = request.GET.get("scorer", found.scorer).replace("\x00", "")
    return render(
        request,
        "evals/run.html",
        {
            "row": reads.with_means([found])[0],
            "run": found,
            "measured": measured,
            "claims": selectors_runs.checked_claims(found, measured),
            "notes": _by_kind(found),
            "spent": selectors_runs.spent(found),
            "own_cost": run_cost(found),
            "slices": selectors_runs.slices(found),
            "progress": progress_of(found) if found.asked_by else None,
            **_repeats(found),
            "scorer": scorer,
            **_results(request, found, scorer),
        },
    )


def _repeats(run: EvalRun) -> dict[str, Any]:
    """What several answers to a problem say, what ran out of a budget, and what training has seen of the problems."""
    tried = tries_of(run)
    return {
        "repeats": repeats_of(tried or ()),
        "over": over_budget(run, tried),
        "num_seen": len(seen_in_training([one.key for one in tried or ()])),
        "num_tried": len(tried or ()),
    }


def _by_kind(run: EvalRun) -> list[tuple[str, list[str]]]:
    kinds = ("missing", "odd", "assumed")
    texts = {kind: [note["text"] for note in run.notes if note["kind"] == kind] for kind in kinds}
    return [(kind, found) for kind, found in texts.items() if found]


def _results(request: MemberRequest, run: EvalRun, scorer: str) -> dict[str, Any]:
    """One page and where the next one starts."""
    after = request.GET.get("after", "")
    place = int(after) if after.isascii() and after.isdigit() and len(after) < 19 else 0
    rows: list[Score] = selectors_runs.results(run, scorer=scorer, after=place, size=selectors_runs.PAGE + 1)
    has_more = len(rows) > selectors_runs.PAGE
    rows = rows[: selectors_runs.PAGE]
    return {"results": rows, "is_first": not place, "next_after": rows[-1].pk if has_more else None}


@require_safe
@member_required()
def leaderboard(request: MemberRequest, benchmark: int) -> HttpResponse:
    found = reads.find_benchmark(benchmark)
    boards: dict[str, list[reads.Standing]] = {}
    problem = ""
    try:
        with patience(PATIENCE_S):
            boards = reads.leaderboard(found)
    except TooSlow:
        problem = f"This was stopped after {PATIENCE_S:.0f} s: the benchmark has too many results to rank at once."
    return render(request, "evals/leaderboard.html", {"benchmark": found, "boards": boards, "problem": problem})


@require_safe
@member_required()
def problem(request: MemberRequest, problem: int) -> HttpResponse:
    found = reads.find_problem(problem)
    context = {
        "problem": found,
        "answers": reads.answers_to(found),
        "most": reads.MOST_ANSWERS,
        "tried": reads.tries_at(found),
        "overlaps": overlaps_of(found),
        "neighbour": None if found.benchmark.origin else neighbours_of(found),
    }
    return render(request, "evals/problem.html", context)


@require_POST
@member_required(Role.ENGINEER)
def upload(request: MemberRequest) -> HttpResponse:
    """What became of the files; for htmx that part alone."""
    problem: StropError | None = None
    outcome: uploads.Outcome | None = None
    try:
        with transaction.atomic():
            outcome = uploads.take(
                request.member.project_id,
                request.FILES.getlist("files"),
                mapping=request.FILES.get("mapping"),
                format=request.POST.get("format") or None,
            )
    except StropError as error:
        problem = error
    status = problem.status if problem else 202 if outcome and outcome.is_open else 200
    return _shown(request, {"outcome": outcome, "problem": problem}, status=status)


@require_safe
@member_required()
def uploaded(request: MemberRequest, job: int) -> HttpResponse:
    """How far a job is with an upload, and in the end what became of it."""
    return _shown(request, {"outcome": uploads.outcome_of(request.member.project_id, job)}, status=200)


def _shown(request: MemberRequest, context: dict[str, Any], *, status: int) -> HttpResponse:
    template = "evals/_outcome.html" if getattr(request, "htmx", False) else "evals/uploaded.html"
    return render(request, template, context, status=status)
