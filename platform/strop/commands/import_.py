from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strop.commands.base import inside_project, json_option, needs_running, print_json, project_option, say, table

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group("import", epilog="Example: strop import runs logs/")
def command() -> None:
    """Bring in benchmark runs, turns and signals that were recorded elsewhere."""


@command.command("runs", epilog="Example: strop import runs logs/ --json")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "format_", metavar="NAME", help="Which format it is. Default: what the file looks like.")
@click.option(
    "--mapping",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON that says which column of a table (CSV, JSONL, JSON list) is what.",
)
@project_option
@json_option
@needs_running
def runs(path: Path, format_: str | None, mapping: Path | None, project: str | None, as_json: bool) -> None:
    """Benchmark runs and comparisons of other tools: a file, or all that a folder holds.

    \b
    Importing again changes nothing; what was cut short goes on. Exit 1 where a file of a known format cannot be read.
    JSON: {"imported": [{"kind", "id", "benchmark", "name", "outcome", "num_new", "num_known", "num_conflicts"}],
           "refused": [{"path", "reason"}], "unknown": [PATH]}
    """
    from evals.services.importing import import_path

    with inside_project(project) as found:
        pass
    with counter("results") as advance:
        report = import_path(found.id, path, format=format_, mapping=mapping, on_progress=advance)
    if as_json:
        print_json(asdict(report))
    else:
        click.echo(
            table([{key: value for key, value in asdict(one).items() if key != "id"} for one in report.imported])
        )
        for refused in report.refused:
            say(f"not imported: {refused.path}: {refused.reason}")
        if report.unknown:
            say(f"of no known format: {', '.join(report.unknown[:5])}{' …' if len(report.unknown) > 5 else ''}")
    if report.refused:
        raise SystemExit(1)


@command.command("realhumaneval", epilog="Example: strop import realhumaneval data/realhumaneval --json")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@project_option
@json_option
@needs_running
def realhumaneval(folder: Path, project: str | None, as_json: bool) -> None:
    """RealHumanEval's chats of programmers with four models; copying an answer is a signal.

    Importing again changes nothing: everything is counted as a duplicate.
    """
    from feedback.importers.realhumaneval import import_realhumaneval

    with inside_project(project) as found:
        pass
    with progress("turns") as advance:
        report = asdict(import_realhumaneval(found.id, folder, on_progress=advance))
    if as_json:
        return print_json(report)
    click.echo(table([{key: value for key, value in report.items() if not isinstance(value, dict | list)}]))
    return None


@contextmanager
def progress(unit: str) -> "Iterator[Callable[[int, int], None]]":
    """advance(done, total) moves a bar with rate and time left on standard error."""
    from tqdm import tqdm

    with tqdm(unit=unit, unit_scale=True) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance


@contextmanager
def counter(unit: str) -> "Iterator[Callable[[int], None]]":
    """advance(done so far, of one file): a count with its rate on standard error, where nobody knows how many come."""
    from tqdm import tqdm

    with tqdm(unit=unit, unit_scale=True) as bar:
        last = 0

        def advance(done: int) -> None:
            nonlocal last
            bar.update(done - last if done > last else done)
            last = done

        yield advance
