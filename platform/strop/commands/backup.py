from dataclasses import asdict
from pathlib import Path

import click

from strop.commands.base import json_option, needs_running, print_json, say


@click.command("backup", epilog="Example: strop backup /mnt/backups/strop.tar.zst --with-checkpoints serving")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--with-checkpoints",
    "level",
    type=click.Choice(["all", "serving", "none"]),
    default="all",
    show_default=True,
    help="Whose files go along: every checkpoint and batch; what serves and what it needs; or rows alone.",
)
@click.option("--without-secrets", is_flag=True, help="Leave out the key that signs sessions, links and webhooks.")
@json_option
@needs_running
def command(file: Path | None, level: str, without_secrets: bool, as_json: bool) -> None:
    """Write rows and files of one moment to one archive, while everything keeps running.

    FILE defaults to <home>/backups/strop-<time>.tar.zst. It holds what users wrote: keep it as safe as the home. Exit 1
    leaves no file behind.

    \b
    JSON: {"file", "created_at", "level", "bytes", "content_bytes", "rows", "checkpoints", "batches", "missing",
           "has_secrets", "took_s"}
    """
    from django.conf import settings

    from registry.backups import BackupUnderWay
    from strop.backup.contents import Level
    from strop.backup.database import DatabaseFailed
    from strop.backup.make import NotEnoughSpace, backup
    from strop.local.binaries import BinaryMissing

    target = file.absolute() if file else None
    try:
        made = backup(
            settings.HOME,
            target,
            level=Level(level),
            with_secrets=not without_secrets,
            version=settings.CODE_VERSION,
            say=say,
        )
    except (
        DatabaseFailed,
        BackupUnderWay,
        NotEnoughSpace,
        BinaryMissing,
        OSError,
        RuntimeError,
        TimeoutError,
    ) as error:
        raise click.ClickException(str(error)) from None
    for name in made.missing:
        say(f"Warning: {name} has a row but no files; the backup cannot hold them")
    if as_json:
        return print_json(asdict(made))
    click.echo(
        f"{made.file}: {made.rows:,} rows, {made.checkpoints} checkpoints, {made.batches} batches, "
        f"{made.bytes / 1e6:,.1f} MB in {made.took_s:g} s"
    )
    return None
