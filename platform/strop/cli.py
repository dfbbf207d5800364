"""The `strop` command. Each subcommand is a thin module in strop.commands, imported only when it is called."""

import errno
import importlib
import os
import sys
from pathlib import Path

import click

COMMANDS = {
    "up": "strop.commands.up",
    "demo": "strop.commands.demo",
    "status": "strop.commands.status",
    "doctor": "strop.commands.doctor",
    "backup": "strop.commands.backup",
    "restore": "strop.commands.restore",
    "gc": "strop.commands.gc",
    "import": "strop.commands.import_",
    "benchmarks": "strop.commands.benchmarks",
    "corpus": "strop.commands.corpus",
    "eval": "strop.commands.eval_",
    "teach": "strop.commands.teach",
    "update": "strop.commands.update",
    "gate": "strop.commands.gate",
    "promote": "strop.commands.promote",
    "rollback": "strop.commands.rollback",
    "report": "strop.commands.report",
    "rollups": "strop.commands.rollups",
    "keys": "strop.commands.keys",
    "members": "strop.commands.members",
    "models": "strop.commands.models",
}


# Not ours to mend: the disk or its permissions.
MACHINE = (errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class LazyGroup(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(COMMANDS[name]).command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where Strop keeps its data. Default: $STROP_HOME, else .strop in the checkout.",
)
@click.version_option(package_name="strop")
def group(home: Path | None) -> None:
    """Strop keeps a deployed language model sharp: users' accepts and rejects become small, proven updates.

    \b
    Exit status: 0 it ran (a gate that holds is 0), 1 it failed, 2 wrong use.
    With --json one JSON object is printed on standard output and nothing else; logs and progress go to standard error.
    """
    if home is not None:
        os.environ["STROP_HOME"] = str(home.absolute())


def main() -> None:
    try:
        group(prog_name="strop")
    except BrokenPipeError:  # `strop report ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in MACHINE:
            raise
        click.echo(f"Error: {error.filename or 'the home'}: {error.strerror}; strop doctor says what to do", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
