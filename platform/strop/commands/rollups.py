from dataclasses import asdict
from datetime import UTC, datetime

import click

from strop.commands.base import inside_project, json_option, needs_running, print_json, project_option, say

AT = click.DateTime(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"])
since_option = click.option("--since", type=AT, help="From this UTC hour on. Default: the oldest.")
until_option = click.option("--until", type=AT, help="Up to this UTC hour. Default: the newest.")


@click.group("rollups", epilog="Example: strop rollups check")
def command() -> None:
    """The hourly counts that the pages read. Workers keep them; this checks them and counts them anew."""


@command.command("check", epilog="Example: strop rollups check --since 2026-11-01 --json")
@since_option
@until_option
@project_option
@json_option
@needs_running
def check(since: datetime | None, until: datetime | None, project: str | None, as_json: bool) -> None:
    """Compare the counts with their rows; status 1 when a clean hour differs.

    \b
    JSON: {"differences": [{"table", "is_stored", "row"}], "dirty_hours"}
    """
    from feedback.models import DirtyHour
    from feedback.services.rollups import differences

    with inside_project(project) as found:
        dirty = set(DirtyHour.objects.values_list("hour", flat=True).distinct())
        different = differences(found.id, since=_utc(since), until=_utc(until))
    wrong = [one for one in different if one.row[0] not in dirty]  # a dirty hour is about to be counted
    if as_json:
        print_json({"differences": [asdict(one) for one in wrong], "dirty_hours": len(dirty)})
    else:
        click.echo(f"{len(wrong)} differences; {len(dirty)} hours wait to be counted")
    if wrong:
        raise click.ClickException("some counts are not those of their rows; run `strop rollups rebuild`")


@command.command("rebuild", epilog="Example: strop rollups rebuild --since 2026-11-01")
@since_option
@until_option
@project_option
@json_option
@needs_running
def rebuild(since: datetime | None, until: datetime | None, project: str | None, as_json: bool) -> None:
    """Count every hour anew from its rows, a day at a time; pages stay right meanwhile.

    \b
    JSON: {"hours"}
    """
    from feedback.services import rollups

    with inside_project(project) as found:
        project_id = found.id
    hours = rollups.rebuild(project_id, since=_utc(since), until=_utc(until))
    say(f"{hours} hours counted")
    if as_json:
        print_json({"hours": hours})


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment else None
