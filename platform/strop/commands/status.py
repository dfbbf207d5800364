import click

from strop.commands.base import json_option, print_json, setup, table


@click.command("status", epilog="Example: strop status --json")
@json_option
def command(as_json: bool) -> None:
    """Say what runs on this home: address, processes, restarts, and whether the site is ready.

    \b
    JSON: {"running", "home", "url", "pid", "ready", "started_at",
           "processes": [{"name", "pid", "started_at", "restarts", "log"}]}
    """
    setup()
    from django.conf import settings

    from strop.local.status import status

    found = status(settings.HOME)
    if as_json:
        return print_json(found)
    if not found["running"]:
        click.echo(f"Strop is not running on {found['home']}. Start it: strop up")
        return None
    ready = "ready" if found["ready"] else "not ready"
    click.echo(
        f"Strop on {found['home']} at {found['url']} is {ready} (pid {found['pid']}, since {found['started_at']})\n"
    )
    click.echo(
        table([{key: row[key] for key in ("name", "pid", "restarts", "started_at")} for row in found["processes"]])
    )
    return None
