"""`strop eval`: measure a checkpoint on a benchmark, by the workers of the running Strop."""

import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option, say
from strop.commands.update import chosen_policy

if TYPE_CHECKING:
    from registry.models import Checkpoint

POLL_S = 0.5
wait_option = click.option("--wait", is_flag=True, help="Stay until it is over, with its progress.")


@click.group("eval", epilog="Example: strop eval run humaneval --policy editor --wait")
def command() -> None:
    """Runs on benchmarks. A worker asks the engine; a run that is cut short goes on where it was."""


@command.command("run", epilog="Example: strop eval run humaneval --policy editor --samples 5 --temperature 0.8 --wait")
@click.argument("benchmark", metavar="BENCHMARK")
@click.option("--policy", metavar="NAME", help="Which policy. Not needed when there is only one.")
@click.option("--checkpoint", metavar="vN", help="Which version of it. Default: what serves now.")
@click.option("--scorer", default="unit_tests", show_default=True, help="What measures the answers.")
@click.option("--samples", type=int, default=1, show_default=True, help="Answers to each problem, for pass@k.")
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Each answer gets a seed of its own, made of it.")
@click.option("--limit", type=int, help="So many problems, the same ones each time. Default: all.")
@click.option("--tokens", type=int, help="Budget of an answer in tokens. Default: the benchmark's, else 512.")
@click.option("--seconds-per-problem", type=float, help="Budget of an answer in seconds, queueing included.")
@click.option("--stop", multiple=True, metavar="TEXT", help=r"Ends an answer; \n is a new line. Up to 4 times.")
@wait_option
@project_option
@json_option
@needs_running
def run(
    benchmark: str,
    policy: str | None,
    checkpoint: str | None,
    scorer: str,
    samples: int,
    temperature: float,
    top_p: float,
    seed: int,
    limit: int | None,
    tokens: int | None,
    seconds_per_problem: float | None,
    stop: tuple[str, ...],
    wait: bool,
    project: str | None,
    as_json: bool,
) -> None:
    """Measure a checkpoint on BENCHMARK (`name`, its newest version, or `name@version`).

    An answer that runs out of tokens is scored as far as it came, and counted. One that takes too many seconds is given
    up: it is unscored, and counted beside the mean.

    \b
    JSON: {"id", "benchmark", "checkpoint", "state", "error", "answers", "asked", "mean", "pass_at_k", "pass_hat_k",
           "flaky", "over_tokens", "over_seconds"}; status 1 when it failed.
    """
    from evals.selectors import newest_benchmark
    from rl_online.services.benchmark_runs import Wanted, start_run

    wanted = Wanted(
        scorer=scorer,
        samples=samples,
        temperature=temperature,
        top_p=top_p,
        max_tokens=tokens,
        stop=tuple(one.replace("\\n", "\n") for one in stop) or None,
        seed=seed,
        limit=limit,
        seconds=seconds_per_problem,
    )
    with inside_project(project) as found:
        started = start_run(newest_benchmark(benchmark), chosen_checkpoint(policy, checkpoint), wanted, actor=actor())
    _tell(found.slug, started.id, wait=wait, as_json=as_json)


@command.command("resume", epilog="Example: strop eval resume 0199a6c0-... --wait")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@wait_option
@project_option
@json_option
@needs_running
def resume(run_id: UUID, wait: bool, project: str | None, as_json: bool) -> None:
    """Go on with a run that was cancelled or failed, and ask again where answers could not be had.

    JSON: as `strop eval run`.
    """
    from evals.selectors_runs import find_run
    from rl_online.services.benchmark_runs import resume_run

    with inside_project(project) as found:
        resume_run(find_run(run_id), actor=actor())
    _tell(found.slug, run_id, wait=wait, as_json=as_json)


@command.command("cancel", epilog="Example: strop eval cancel 0199a6c0-...")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@project_option
@json_option
@needs_running
def cancel(run_id: UUID, project: str | None, as_json: bool) -> None:
    """Stop a run. Its answers are kept, and compared with nothing until it is resumed.

    JSON: as `strop eval run`.
    """
    from evals.selectors_runs import find_run
    from rl_online.services.benchmark_runs import cancel_run

    with inside_project(project) as found:
        cancel_run(find_run(run_id), actor=actor())
    _tell(found.slug, run_id, wait=False, as_json=as_json)


@command.command("show", epilog="Example: strop eval show 0199a6c0-... --json")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@project_option
@json_option
@needs_running
def show(run_id: UUID, project: str | None, as_json: bool) -> None:
    """How far a run is, and what it has measured.

    JSON: as `strop eval run`.
    """
    with inside_project(project) as found:
        pass
    _tell(found.slug, run_id, wait=False, as_json=as_json)


def chosen_checkpoint(policy: str | None, version: str | None) -> "Checkpoint":
    """Inside a tenant. `version` as v3 or 3, or the whole name editor@3; None: what serves."""
    from registry.services import find_checkpoint, serving_checkpoint

    if version is None:
        return serving_checkpoint(chosen_policy(policy))
    if "@" in version:
        return find_checkpoint(version)
    return find_checkpoint(f"{chosen_policy(policy).name}@{version.removeprefix('v')}")


def _tell(slug: str, run_id: UUID, *, wait: bool, as_json: bool) -> None:
    from evals.run_report import report_of
    from evals.selectors_runs import find_run

    if wait:
        _follow(slug, run_id)
    with inside_project(slug):
        told = report_of(find_run(run_id))
    if as_json:
        print_json(told)
    else:
        click.echo(f"{told['id']}: {told['checkpoint']} on {told['benchmark']} is {told['state']}")
        click.echo(f"  {told['answers']} of {told['asked']} answers")
        for name in ("mean", *(f"pass@{k}" for k in told["pass_at_k"])):
            one = told["mean"] if name == "mean" else told["pass_at_k"][name.removeprefix("pass@")]
            click.echo(f"  {name} {_words(one)}")
    if told["state"] == "failed":
        raise click.ClickException(told["error"] or "the run failed")


def _words(one: dict[str, Any] | None) -> str:
    if one is None or one["value"] is None:
        return "unknown"
    bounds = "no interval" if one["low"] is None else f"{one['low']:.1%} to {one['high']:.1%}, {one['interval']}"
    return f"{one['value']:.1%} ({bounds}; n {one['n']} problems)"


def _follow(slug: str, run_id: UUID) -> None:
    """Answers with rate and time left on standard error, and why it waits."""
    from tqdm import tqdm

    from evals.models import EvalState, Score
    from evals.run_report import num_asked
    from evals.selectors_runs import find_run
    from rl_online.services.benchmark_runs import work_on

    said = ""
    with tqdm(unit="answer") as bar:
        while True:
            with inside_project(slug):
                run = find_run(run_id)
                total = num_asked(run)
                num_done = Score.objects.filter(run=run, scorer=run.scorer).count()
                job = work_on(run)
            bar.total = total
            bar.update(num_done - bar.n)
            if run.state != EvalState.RUNNING:
                return
            why = job.last_error.strip().rsplit("\n", 1)[-1] if job else ""
            if why != said:
                say(why)
                said = why
            time.sleep(POLL_S)
