"""`strop update`: learn from what is labelled now, and with --wait see it through to the gate's decision."""

import time
from typing import TYPE_CHECKING, Any

import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option, say

if TYPE_CHECKING:
    from uuid import UUID

    from registry.models import Policy

POLL_S = 0.5


@click.command("update", epilog="Example: strop update editor --kind sft --option edits=false --dry-run --json")
@click.argument("name", metavar="[POLICY]", required=False)
@click.option(
    "--replay",
    metavar="POLICY@VERSION",
    help="Learn from that update's batch once more, from what serves now. Marked; only a person promotes it.",
)
@click.option("--policy", metavar="NAME", help="The same as POLICY. Not needed when there is only one.")
@click.option("--kind", metavar="KIND", help="online (the default), or a stage: sft, pairs, ...; see docs/training.md.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="What the stage seals, e.g. edits=false at_least=8."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a field of the update's config.")
@click.option("--dry-run", is_flag=True, help="Train on a few of the samples and keep nothing; waits for the numbers.")
@click.option(
    "--wait", is_flag=True, help="Stay until it is promoted, held, waiting for a person, cancelled or failed."
)
@project_option
@json_option
@needs_running
def command(
    name: str | None,
    replay: str | None,
    policy: str | None,
    kind: str | None,
    options: tuple[str, ...],
    settings: tuple[str, ...],
    dry_run: bool,
    wait: bool,
    project: str | None,
    as_json: bool,
) -> None:
    """Start an update now, as the Trigger button does.

    \b
    JSON: {"id", "kind", "checkpoint", "state", "error", "decision", "reasons", "timings"}; status 1 when it failed.
    Of a dry run: {"id", "kind", "state", "error", "num_samples", "num_tokens", "steps", "seconds", "tokens_per_s",
    "peak_bytes", "device"}.
    """
    from rl_online.services.updates import find_update, replay_update, trigger_update

    asked: dict[str, Any] = {"overrides": overrides(settings), "actor": actor()}
    new = asked | {"kind": kind, "options": dict(pair(one, "--option", "edits=false") for one in options)}
    if replay is not None and (kind or options or dry_run):
        raise click.UsageError("--replay takes kind and samples as they are; leave --kind, --option and --dry-run out")
    if dry_run:
        return try_first(name or policy, new, project, as_json=as_json)
    with inside_project(project) as found:
        if replay is not None:
            run = replay_update(find_update(replay), **asked)
        else:
            run = trigger_update(chosen_policy(name or policy), **new)
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


def try_first(policy: str | None, asked: dict[str, Any], project: str | None, *, as_json: bool) -> None:
    """A dry run to its end."""
    from rl_online.models import DryRun, DryRunState
    from rl_online.services.dry_runs import start_dry_run

    with inside_project(project) as found:
        row: DryRun = start_dry_run(chosen_policy(policy), **asked)
    say(f"dry run of {row.kind}")
    while not DryRunState(row.state).is_over:
        time.sleep(POLL_S)
        with inside_project(found.slug):
            row.refresh_from_db()
    names = ("kind", "state", "num_samples", "num_tokens", "steps", "seconds", "tokens_per_s", "peak_bytes", "device")
    if as_json:
        print_json({"id": str(row.id), "error": row.error or None} | {name: getattr(row, name) for name in names})
    else:
        click.echo(f"{row.num_samples or 0} samples are {row.state}")
        for number, step in enumerate(row.steps, start=1):
            click.echo(f"  step {number}: loss {step.get('loss', float('nan')):.4f}")
    if row.state == DryRunState.FAILED:
        raise click.ClickException(row.error or "the dry run failed")


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
        key, value = pair(setting, "--set", "learning_rate=1e-5")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def pair(text: str, flag: str, example: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.UsageError(f"{flag} {text}: write KEY=VALUE, e.g. {flag} {example}")
    return key, value


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
        "kind": run.kind,
        "checkpoint": f"{run.policy.name}@{run.version}",
        "state": run.state,
        "error": run.error or None,
        "decision": report and report.decision,
        "reasons": report.reasons if report else [],
        "timings": run.timings,
    }
