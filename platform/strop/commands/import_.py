from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strop.commands.base import inside_project, json_option, needs_running, print_json, project_option, table

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group("import", epilog="Example: strop import realhumaneval FOLDER")
def command() -> None:
    """Bring in turns and signals that were recorded elsewhere."""


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
