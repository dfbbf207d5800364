import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strop.commands.base import inside_project, json_option, needs_running, print_json, project_option, table

if TYPE_CHECKING:
    from feedback.selectors import By


@click.group("report", epilog="Example: strop report accept-share --by checkpoint")
def command() -> None:
    """Numbers from what users did, and runs for other tools."""


@command.command("accept-share", epilog="Example: strop report accept-share --by model --source import --json")
@click.option(
    "--by", type=click.Choice(["checkpoint", "model", "user", "surface"]), default="checkpoint", show_default=True
)
@click.option(
    "--source",
    type=click.Choice(["production", "import", "simulated", "eval", "judge", "playground"]),
    help="Only turns of this source. Default: all that users saw.",
)
@project_option
@json_option
@needs_running
def accept_share(by: "By", source: str | None, project: str | None, as_json: bool) -> None:
    """Share of settled, shown turns that users accepted, with a 95 % interval and n.

    \b
    JSON: {"groups": [{"key", "turns", "accepted", "share", "low", "high", "interval"}]}
    """
    from feedback.selectors import accept_share as groups_of

    with inside_project(project):
        groups = [asdict(group) for group in groups_of(by=by, source=source)]
    if as_json:
        return print_json({"groups": groups})
    click.echo(table(groups))
    return None


@command.command("costs", epilog="Example: strop report costs --days 7 --json")
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="Whole hours of so many days.")
@project_option
@json_option
@needs_running
def costs(days: int, project: str | None, as_json: bool) -> None:
    """What each checkpoint and model cost, by purpose, in USD. What has no price is counted beside, never as 0.

    \b
    JSON: {"since", "until", "total", "idle", "rows": [{"name", "purpose", "usd", "calls", "unpriced_calls",
           "unpriced_tokens", "provided_usd", "device_seconds", "tokens"}]}; amounts are exact decimals as text
    """
    from datetime import timedelta

    from django.utils import timezone

    from rl_online.spending.ledger import ledger
    from rl_online.spending.report import rows_of, spend_of

    now = timezone.now()
    with inside_project(project):
        book = ledger(now - timedelta(days=days), now)
    rows = rows_of(book)
    if as_json:
        idle = spend_of(book.idle.spend) if book.idle.known_since else None
        return print_json(
            {
                "since": book.since.isoformat(), "until": book.until.isoformat(), "total": spend_of(book.total),
                "idle": idle, "rows": rows,
            }
        )  # fmt: skip
    click.echo(table(rows))
    return None


@command.command("run", epilog="Example: strop report run 0199f0c2-... --as inspect --out logs/")
@click.argument("run")
@click.option(
    "--as",
    "format_",
    type=click.Choice(["every-eval-ever", "lm-eval", "inspect"]),
    default="every-eval-ever",
    show_default=True,
    help="The format of which tool.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write all its files into this folder.")
@project_option
@json_option
@needs_running
def run(run: str, format_: str, out: Path | None, project: str | None, as_json: bool) -> None:
    """One benchmark run, made here or imported, as another tool writes it. RUN is its id.

    \b
    Without --out: its main document, which is JSON, on standard output.
    With --out: answers and all. JSON: {"files": [PATH]}
    """
    from evals.exporters.registry import exporter_named
    from evals.services.exporting import exported

    with inside_project(project) as found:
        pass
    files = exporter_named(format_).files(exported(found, run))
    if out is None:
        _name, chunks = next(iter(files))
        for chunk in chunks:
            sys.stdout.write(chunk.decode())
        sys.stdout.write("\n")
        return None
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, chunks in files:
        with (out / name).open("wb") as file:
            file.writelines(chunks)
        written.append(str(out / name))
    if as_json:
        return print_json({"files": written})
    click.echo("\n".join(written))
    return None
