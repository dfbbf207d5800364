"""Benchmarks: the list, a run that is asked for, cancelled and gone on with, and what of one training has seen."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required, said
from console.reads import benchmarks as reads
from console.reads.evals import find_benchmark
from evals.selectors import newest_benchmark
from evals.selectors_runs import find_run
from evals.services.humaneval import add_humaneval
from registry.errors import InvalidInput, NotFound, StropError
from registry.models import Role
from registry.services import find_checkpoint
from rl_online.services import overlaps
from rl_online.services.benchmark_runs import Wanted, cancel_run, resume_run, start_run

START = {
    "samples": "1",
    "temperature": "0",
    "max_tokens": "",
    "seconds": "",
    "limit": "",
    "seed": "0",
    "scorer": "unit_tests",
}


@require_safe
@member_required()
def benchmarks(request: MemberRequest) -> HttpResponse:
    return render(request, "evals/benchmarks.html", {"rows": reads.rows(), "most": reads.MOST})


@require_POST
@member_required(Role.ENGINEER)
def add(request: MemberRequest) -> HttpResponse:
    """HumanEval, of its package."""
    back = reverse("console:benchmarks", args=[request.member.project.slug])

    def act() -> str:
        found = add_humaneval(request.member.project_id)
        overlaps.ask_about_benchmark(found)
        return f"{found} is there and can be run."

    return carry_out(request, act, back=back)


def form_of(sent: Any = None) -> dict[str, Any]:
    """For the form of a run: what it offers, and what is in it."""
    return {"offered": reads.choices(), "form": START | {name: sent[name] for name in sent or () if sent[name]}}


@require_http_methods(["GET", "HEAD", "POST"])
@member_required(Role.ENGINEER)
def start(request: MemberRequest) -> HttpResponse:
    """The form alone, e.g. for one benchmark; sent, the run's page, or the form again with what is wrong."""
    if request.method != "POST":
        return render(request, "evals/run_new.html", form_of(request.GET.dict()))
    sent = request.POST.dict()
    try:
        with transaction.atomic():
            benchmark = newest_benchmark(sent.get("benchmark", ""))
            checkpoint = find_checkpoint(sent.get("checkpoint", ""))
            run = start_run(benchmark, checkpoint, _wanted(sent), actor=request.user.get_username())
    except StropError as error:
        status = 400 if isinstance(error, NotFound) else error.status
        return render(request, "evals/run_new.html", form_of(sent) | {"problem": error}, status=status)
    return redirect("console:eval-run", request.member.project.slug, run.id)


def _wanted(sent: dict[str, str]) -> Wanted:
    """Raises InvalidInput naming the field; what a number may be is for the service to say."""
    temperature, seconds = _number(sent, "temperature"), _number(sent, "seconds")
    return Wanted(
        scorer=sent.get("scorer", "") or "unit_tests",
        samples=_whole(sent, "samples") or 1,
        temperature=0.0 if temperature is None else temperature,
        max_tokens=_whole(sent, "max_tokens"),
        seed=_whole(sent, "seed") or 0,
        limit=_whole(sent, "limit"),
        seconds=seconds,
    )


def _number(sent: dict[str, str], name: str) -> float | None:
    text = sent.get(name, "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidInput(f"found {text[:40]!r}; give a number", field=name) from None


def _whole(sent: dict[str, str], name: str) -> int | None:
    text = sent.get(name, "").strip()
    if text and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidInput(f"found {text[:40]!r}; give a whole number", field=name)
    return int(text) if text else None


@require_POST
@member_required(Role.ENGINEER)
def cancel(request: MemberRequest, run: UUID) -> HttpResponse:
    found, actor = find_run(run), request.user.get_username()

    def act() -> str:
        cancel_run(found, actor=actor)
        return "The run is cancelled. Its answers are kept, and compared with nothing until it goes on."

    return carry_out(request, act, back=reverse("console:eval-run", args=[request.member.project.slug, run]))


@require_POST
@member_required(Role.ENGINEER)
def resume(request: MemberRequest, run: UUID) -> HttpResponse:
    found, actor = find_run(run), request.user.get_username()

    def act() -> str:
        num_again = resume_run(found, actor=actor)
        return "The run goes on." + (f" {num_again} answers are asked for again." if num_again else "")

    return carry_out(request, act, back=reverse("console:eval-run", args=[request.member.project.slug, run]))


@require_safe
@member_required()
def overlap(request: MemberRequest, benchmark: int) -> HttpResponse:
    """Which problems stand in which sealed batches."""
    found = find_benchmark(benchmark)
    return render(request, "evals/overlap.html", {"benchmark": found, "report": overlaps.report(found)})


@require_POST
@member_required(Role.ENGINEER)
def check(request: MemberRequest, benchmark: int) -> HttpResponse:
    found = find_benchmark(benchmark)
    back = reverse("console:benchmark-overlap", args=[request.member.project.slug, benchmark])

    def act() -> str:
        overlaps.ask_about_benchmark(found)
        return said("A worker looks for its problems in every sealed batch.", link="Look again", url=back)

    return carry_out(request, act, back=back)
