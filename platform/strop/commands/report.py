from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from strop.commands.base import inside_project, json_option, needs_running, print_json, project_option, table

if TYPE_CHECKING:
    from feedback.selectors import By


@click.group("report", epilog="Example: strop report accept-share --by checkpoint")
def command() -> None:
    """Numbers from what users did."""


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
