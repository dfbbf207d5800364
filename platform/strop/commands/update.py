"""`strop update`: learn from what is labelled now, and with --wait see it through to the gate's decision."""

import time
from typing import TYPE_CHECKING, Any

import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option, say

if TYPE_CHECKING:
    from uuid import UUID

    from registry.models import Policy

POLL_S = 0.5


@click.command("update", epilog="Example: strop update --policy editor --wait --json")
@click.option(
    "--replay",
    metavar="POLICY@VERSION",
    help="Learn from that update's batch once more, from what serves now. Marked; only a person promotes it.",
)
@click.option("--policy", metavar="NAME", help="Which policy. Not needed when there is only one.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a field of the update's config.")
@click.option(
    "--wait", is_flag=True, help="Stay until it is promoted, held, waiting for a person, cancelled or failed."
)
@project_option
@json_option
@needs_running
def command(
    replay: str | None, policy: str | None, settings: tuple[str, ...], wait: bool, project: str | None, as_json: bool
) -> None:
    """Start an update now, as the Trigger button does.

    \b
    JSON: {"id", "checkpoint", "state", "error", "decision", "reasons", "timings"}; status 1 when it failed.
    """
    from rl_online.services.updates import find_update, replay_update, trigger_update

    with inside_project(project) as found:
        if replay is not None:
            run = replay_update(find_update(replay), overrides=overrides(settings), actor=actor())
        else:
            run = trigger_update(chosen_policy(policy), overrides=overrides(settings), actor=actor())
    say(f"{run.policy.name}@{run.version}: {run.state}")
    if wait:
        follow(found.id, run.id)
    with inside_project(found.slug):
        result = describe(run.id)
    if as_json:
        print_json(result)
    else:
        click.echo(f"{result['checkpoint']} is {result['state']}")
        for reason in result["reasons"]:
            click.echo(f"  {reason}")
    if result["state"] == "failed":
        raise click.ClickException(result["error"] or "the update failed")


def chosen_policy(name: str | None) -> "Policy":
    from registry.errors import InvalidInput
    from registry.models import Policy
    from registry.services import find_policy

    if name is not None:
        return find_policy(name)
    policies = list(Policy.objects.all()[:2])
    if len(policies) != 1:
        raise InvalidInput("say which policy" if policies else "none yet; run strop models add", field="--policy")
    return policies[0]


def overrides(settings: tuple[str, ...]) -> dict[str, Any]:
    """`learning_rate=1e-5` -> {"learning_rate": 1e-05}; a value is JSON where it reads as JSON, else text."""
    import json

    found = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise click.UsageError(f"--set {setting}: write KEY=VALUE, e.g. --set learning_rate=1e-5")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def follow(project_id: "UUID", run_id: "UUID") -> None:
    """Show the run's steps with rate and time left on standard error, until a person or nobody has to act."""
    from tqdm import tqdm

    from registry.tenancy import tenant
    from rl_online.models import UpdateRun, UpdateState

    with tqdm(unit="step", desc="queued") as bar:
        while True:
            with tenant(project_id):
                run: UpdateRun = UpdateRun.objects.get(id=run_id)
            state = UpdateState(run.state)
            bar.set_description(state)
            bar.total = run.num_steps
            bar.update(run.step - bar.n)
            if state.is_over or state is UpdateState.WAITING:
                return
            time.sleep(POLL_S)


def describe(run_id: "UUID") -> dict[str, Any]:
    from rl_online.models import GateReport, UpdateRun

    run = UpdateRun.objects.select_related("policy").get(id=run_id)
    report = GateReport.objects.filter(run=run).order_by("-created_at").first()
    return {
        "id": str(run.id),
        "checkpoint": f"{run.policy.name}@{run.version}",
        "state": run.state,
        "error": run.error or None,
        "decision": report and report.decision,
        "reasons": report.reasons if report else [],
        "timings": run.timings,
    }
