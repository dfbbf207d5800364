import sys

import click

from strop.commands.base import say
from strop.env import BadSetting, flag


@click.command("up", epilog="Example: strop --home ~/strop up --port 9000")
@click.option("--host", envvar="STROP_HOST", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", envvar="STROP_PORT", default=8000, show_default=True, help="0 takes any free one.")
@click.option("--production", is_flag=True, help="Stop on unsafe settings; cookies only over HTTPS.")
@click.option(
    "--plain-http",
    is_flag=True,
    help="Let others in without --production: passwords, keys and turns travel in the clear.",
)
@click.option("--without", multiple=True, metavar="NAME", help="Leave out engine, updater, worker, beat or web.")
@click.option("--quiet", is_flag=True, help="Write logs to the home folder only.")
def command(host: str, port: int, production: bool, plain_http: bool, without: tuple[str, ...], quiet: bool) -> None:
    """Start everything and stay: PostgreSQL, Valkey, web, worker, beat, engine and updater.

    The first start makes the database, the owner, a project and a key, and prints a link to sign in with. Programs that
    end are started again. Ctrl-C stops all of them in order; nothing is left running.
    """
    from strop.local.account import UnsafeFolder
    from strop.local.binaries import BinaryMissing
    from strop.local.lock import AlreadyRunning
    from strop.local.ports import PortTaken, is_loopback
    from strop.local.processes import NAMES

    if not is_loopback(host) and not (production or plain_http or flag("STROP_PRODUCTION", False)):
        raise click.UsageError(
            f"--host {host} can be reached by others, who could read passwords, keys and turns on the way: add "
            "--production (it checks the settings; put a TLS proxy before it, see docs/operations.md), or --plain-http"
        )
    if plain_http and not production:
        say(f"Warning: {host} is served over plain HTTP; passwords, keys and turns travel in the clear.")
    unknown = sorted(set(without) - set(NAMES))
    if unknown:
        raise click.UsageError(f"--without {unknown[0]}: choose from {', '.join(NAMES)}")
    try:
        from strop.local.up import up
        from strop.settings import HOME

        up(HOME, host=host, port=port, is_production=production, without=without, shown=() if quiet else None)
    except (AlreadyRunning, PortTaken, BinaryMissing, UnsafeFolder, BadSetting, RuntimeError, TimeoutError) as error:
        say(f"Error: {error}")
        sys.exit(1)
