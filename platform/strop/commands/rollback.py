import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option
from strop.commands.update import chosen_policy


@click.command(
    "rollback", epilog='Example: strop rollback --policy editor --reason "users complain about empty answers"'
)
@click.option("--policy", metavar="NAME", help="Which policy. Not needed when there is only one.")
@click.option("--to", "version", type=int, metavar="VERSION", help="A retired version. Default: the predecessor.")
@click.option("--reason", required=True, help="Why. Kept in the audit trail.")
@project_option
@json_option
@needs_running
def command(policy: str | None, version: int | None, reason: str, project: str | None, as_json: bool) -> None:
    """Serve an earlier checkpoint again. What was learnt after it is not built upon any more.

    \b
    JSON: {"serving", "before", "fence"}
    """
    from registry.services import serving_checkpoint
    from rl_online.services.promotion import roll_back

    with inside_project(project):
        found = chosen_policy(policy)
        before = serving_checkpoint(found)
        deployment = roll_back(found, actor=actor(), reason=reason, version=version, expected=before)
        result = {"serving": str(deployment.checkpoint), "before": str(before), "fence": deployment.fence}
    if as_json:
        return print_json(result)
    click.echo(f"{result['serving']} serves again instead of {before}")
    return None
