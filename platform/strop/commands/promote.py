import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option


@click.command("promote", epilog='Example: strop promote editor@3 --reason "checked by hand, small loss accepted"')
@click.argument("checkpoint", metavar="POLICY@VERSION")
@click.option("--reason", default="", help="Why; needed when the gate did not say promote. Kept in the audit trail.")
@project_option
@json_option
@needs_running
def command(checkpoint: str, reason: str, project: str | None, as_json: bool) -> None:
    """Let a candidate serve.

    \b
    JSON: {"serving", "previous", "fence"}
    """
    from registry.services import find_checkpoint
    from rl_online.services.promotion import promote

    with inside_project(project):
        deployment = promote(find_checkpoint(checkpoint), actor=actor(), reason=reason)
        result = {
            "serving": str(deployment.checkpoint),
            "previous": deployment.previous and str(deployment.previous),
            "fence": deployment.fence,
        }
    if as_json:
        return print_json(result)
    click.echo(f"{result['serving']} serves now; before it: {result['previous']}")
    return None
