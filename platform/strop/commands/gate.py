import click

from strop.commands.base import inside_project, json_option, needs_running, print_json, project_option


@click.command("gate", epilog="Example: strop gate editor@3 --json")
@click.argument("checkpoint", metavar="POLICY@VERSION")
@project_option
@json_option
@needs_running
def command(checkpoint: str, project: str | None, as_json: bool) -> None:
    """Show what the gate decided about a checkpoint, and why.

    A decision to hold is an answer, not a failure: status 0.

    \b
    JSON: {"checkpoint", "decision", "reasons", "evidence", "judge", "at"}
    """
    from registry.errors import NotFound
    from registry.services import find_checkpoint
    from rl_online.models import GateReport

    with inside_project(project):
        found = find_checkpoint(checkpoint)
        report = GateReport.objects.filter(checkpoint=found).order_by("-created_at").first()
        if report is None:
            raise NotFound(f"{found} has no gate report", field="checkpoint")
    if as_json:
        return print_json(
            {
                "checkpoint": checkpoint,
                "decision": report.decision,
                "reasons": report.reasons,
                "evidence": report.evidence,
                "judge": report.judge,
                "at": report.created_at.isoformat(),
            }
        )
    click.echo(f"{checkpoint}: {report.decision}")
    for reason in report.reasons:
        click.echo(f"  {reason}")
    return None
