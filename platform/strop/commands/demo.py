import sys

import click


@click.command(
    "demo",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    epilog="Example: strop demo --quick",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Watch the loop learn: a small model, an editor, a crowd of users, all on this machine."""
    from strop.demo.run import main

    sys.exit(main(list(arguments)))
