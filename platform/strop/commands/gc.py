from typing import Any

import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option


@click.command("gc", epilog="Example: strop gc --dry-run")
@click.option("--dry-run", is_flag=True, help="Say what would go, and delete nothing.")
@click.option(
    "--pin", metavar="CHECKPOINT", help="Keep the files of this one, e.g. editor@3, whatever the settings say."
)
@click.option("--unpin", metavar="CHECKPOINT", help="Let retention decide about it again.")
@click.option(
    "--rebuild", metavar="CHECKPOINT", help="Make its deleted files again from an older one and deltas; pins it."
)
@project_option
@json_option
@needs_running
def command(
    dry_run: bool, pin: str | None, unpin: str | None, rebuild: str | None, project: str | None, as_json: bool
) -> None:
    """Delete files of checkpoints, deltas and batches that the projects' settings no longer keep. Rows stay.

    Kept always: what serves, its predecessor, the canary, open candidates, the first, pinned ones, what an engine
    holds, what an update or the gate works with, and the keyframes and deltas from which newer ones can be made again.
    Without --project all projects are looked at, and leftovers of crashes older than a day go too.

    \b
    JSON: {"dry_run", "bytes", "kinds": {kind: {"count", "bytes"}}, "deleted": [..], "kept": {checkpoint: why}}
    """
    if one := pin or unpin or rebuild:
        return _one(one, is_pin=bool(pin), is_unpin=bool(unpin), project=project, as_json=as_json)
    from registry.services import all_projects, find_project
    from rl_online.services.disposal import Report, dispose_orphans
    from rl_online.services.retention import collect

    report = Report(is_dry_run=dry_run)
    for found in [find_project(project)] if project else all_projects():
        collect(found.id, actor=actor(), report=report)
    if project is None:
        dispose_orphans(report)
    if as_json:
        return print_json(report.to_json())
    for kind, amount in sorted(report.kinds.items()):
        click.echo(f"{kind:12} {amount.count:5}  {amount.bytes / 1e6:10,.1f} MB")
    click.echo(
        f"{'would free' if dry_run else 'freed'} {report.num_bytes / 1e6:,.1f} MB; {len(report.kept)} checkpoints kept"
    )
    return None


def _one(name: str, *, is_pin: bool, is_unpin: bool, project: str | None, as_json: bool) -> None:
    from registry.services import find_checkpoint
    from rl_online.services.rebuilding import rebuild
    from rl_online.services.retention import pin

    with inside_project(project) as found:
        if is_pin or is_unpin:
            pin(find_checkpoint(name), is_pinned=is_pin, actor=actor())
    if not (is_pin or is_unpin):
        rebuild(found.id, name, actor=actor())
    with inside_project(project):
        checkpoint = find_checkpoint(name)
    told: dict[str, Any] = {"checkpoint": str(checkpoint), "pinned": checkpoint.is_pinned}
    told["has_files"] = checkpoint.files_deleted_at is None
    if as_json:
        return print_json(told)
    pinned = "pinned" if told["pinned"] else "not pinned"
    click.echo(f"{checkpoint}: {pinned}, {'with' if told['has_files'] else 'without'} files")
    return None
