from datetime import datetime
from typing import Any

import click

from strop.commands.base import json_option, print_json, setup, table


@click.command("status", epilog="Example: strop status --json")
@json_option
def command(as_json: bool) -> None:
    """Say what runs on this home: address, every process with version and last sign of life, disk, the last backup.

    \b
    JSON: {"running", "home", "url", "public_url", "pid", "ready", "started_at", "version",
           "processes": [{"name", "pid", "started_at", "restarts", "log"}],
           "signs": [{"kind", "name", "state", "pid", "version", "started_at", "seen_at", "restarts"}] or null,
           "disk": [{"kind", "bytes", "files"}] or null, "backup": {"state", "file", "finished_at", "error"} or null}
    "signs" and "disk" are null while the database cannot be reached.
    """
    setup()
    from django.conf import settings

    from registry.backups import Journal
    from strop.local.status import status

    found = status(settings.HOME) | {"version": settings.CODE_VERSION} | _from_database()
    found["public_url"] = settings.PUBLIC_URL if found["running"] else None
    journal = Journal(settings.HOME.run).read()
    found["backup"] = (
        {name: journal.get(name) for name in ("state", "file", "finished_at", "error")} if journal else None
    )
    if as_json:
        return print_json(found)
    if not found["running"]:
        click.echo(f"Strop is not running on {found['home']}. Start it: strop up")
        return None
    ready = "ready" if found["ready"] else "not ready"
    click.echo(
        f"Strop {found['version']} on {found['home']} at {found['public_url']} is {ready} "
        f"(pid {found['pid']}, since {found['started_at']})\n"
    )
    rows = found["signs"] or found["processes"]
    shown = [key for key in ("name", "state", "pid", "restarts", "version", "started_at", "seen_at") if key in rows[0]]
    click.echo(table([{key: _short(row[key]) for key in shown} for row in rows]))
    if found["disk"]:
        sizes = [f"{row['kind']} {row['bytes'] / 1e6:,.0f} MB" for row in found["disk"] if row["bytes"]]
        click.echo(f"\ndisk: {', '.join(sizes)}")
    backup = found["backup"]
    click.echo(f"backup: {backup['state']}, {backup['file']}" if backup else "backup: none yet (strop backup)")
    return None


def _short(value: Any) -> Any:
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else value


def _from_database() -> dict[str, Any]:
    """Signs of life and sizes; nulls while nobody answers. Engines' own words are read for each project."""
    from django.db import OperationalError, ProgrammingError

    from console.reads import system
    from registry.services import all_projects
    from registry.tenancy import tenant

    try:
        engines = []
        for project in all_projects():
            with tenant(project.id):
                engines += system.engine_reports()
        by_pid = {(report.engine, report.pid): report for report in engines}
        signs = [process.to_json() for process in system.processes(list(by_pid.values()))]
        disk = [{"kind": use.kind, "bytes": use.bytes, "files": use.files} for use in system.disk()]
    except (OperationalError, ProgrammingError):
        return {"signs": None, "disk": None}
    return {"signs": signs, "disk": disk}
