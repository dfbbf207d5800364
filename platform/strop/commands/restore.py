from dataclasses import asdict
from pathlib import Path

import click

from strop.commands.base import chosen_home, json_option, print_json, say


@click.command("restore", epilog="Example: strop restore /mnt/backups/strop.tar.zst")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--replace", is_flag=True, help="Move what lives in the home aside first, whole, so that it still starts."
)
@json_option
def command(file: Path, replace: bool, as_json: bool) -> None:
    """Make the home of --home from a backup: every digest is verified first, and row counts are compared at the end.

    Nothing is touched before the archive has proved whole. A home that is not empty is refused without --replace; one
    on which Strop runs is refused always.

    \b
    JSON: {"home", "created_at", "rows", "files", "bytes", "level", "missing", "old_home"}
    """
    from strop.backup.archive import BadArchive
    from strop.backup.database import DatabaseFailed
    from strop.backup.make import NotEnoughSpace
    from strop.backup.restore import HomeInUse, TooNew, restore
    from strop.local.account import UnsafeFolder
    from strop.local.binaries import BinaryMissing
    from strop.local.lock import AlreadyRunning

    try:
        done = restore(chosen_home(), file, is_replacing=replace, say=say)
    except BadArchive as error:
        raise click.ClickException(f"{file} is not restored: {error}. Nothing was touched.") from None
    except (
        AlreadyRunning, BinaryMissing, DatabaseFailed, HomeInUse, NotEnoughSpace, OSError, RuntimeError, TimeoutError,
        TooNew, UnsafeFolder,
    ) as error:  # fmt: skip
        raise click.ClickException(str(error)) from None
    for name in done.missing:
        say(f"Warning: {name} has a row and no files: the backup did not have them")
    if as_json:
        return print_json(asdict(done))
    click.echo(f"{done.home} is as it was at {done.created_at}: {done.rows:,} rows, {done.files:,} files.")
    if done.old_home:
        click.echo(f"What was there is in {done.old_home}")
    click.echo(f"Start it: strop --home {done.home} up")
    return None
