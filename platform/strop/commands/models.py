import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option, table


@click.group("models", epilog="Example: strop models add smollm2 --name editor")
def command() -> None:
    """Models that policies start from, and the policies of a project."""


@command.command("add", epilog="Example: strop models add smollm2 --name editor")
@click.argument("model", metavar="smollm2|FOLDER|HUB_NAME")
@click.option("--name", metavar="POLICY", help="What the policy is called. Default: the model's own name.")
@project_option
@json_option
@needs_running
def add(model: str, name: str | None, project: str | None, as_json: bool) -> None:
    """Make a model version 1 of a new policy and serve it. Adding it again changes nothing.

    smollm2 is downloaded once (93 MB) and converted; a folder or a hub name must hold a config and safetensors.

    \b
    JSON: {"policy", "checkpoint", "folder", "tree_digest", "project"}
    """
    from registry.services import serving_checkpoint
    from registry.tenancy import tenant
    from rl_online.services.plans import start_policy

    with inside_project(project) as found:
        pass
    stored = store(model)
    folder = Path(stored["folder"])
    policy = start_policy(found.id, name=name or slug(folder.name), folder=folder, source=model, actor=actor())
    with tenant(found.id):
        checkpoint = serving_checkpoint(policy)
    if as_json:
        return print_json({"policy": policy.name, "checkpoint": str(checkpoint), "project": found.slug, **stored})
    click.echo(f"{checkpoint} serves in project {found.slug}")
    return None


@command.command("list", epilog="Example: strop models list")
@project_option
@json_option
@needs_running
def list_(project: str | None, as_json: bool) -> None:
    """Show the policies and which checkpoint of each serves.

    \b
    JSON: {"policies": [{"policy", "source", "serving", "checkpoints"}]}
    """
    from django.db.models import Count

    from registry.models import Deployment, Policy

    with inside_project(project):
        serving = {
            deployment.policy_id: str(deployment.checkpoint)
            for deployment in Deployment.objects.filter(alias="default").select_related("checkpoint__policy")
        }
        rows: list[dict[str, Any]] = [
            {
                "policy": policy.name,
                "source": policy.source,
                "serving": serving.get(policy.id),
                "checkpoints": policy.num_checkpoints,
            }
            for policy in Policy.objects.annotate(num_checkpoints=Count("checkpoints")).order_by("created_at")
        ]
    if as_json:
        return print_json({"policies": rows})
    click.echo(table(rows))
    return None


def store(model: str) -> dict[str, str]:
    """The model as a checked folder of the home's store; a process of its own because it may need torch."""
    from django.conf import settings

    command = [sys.executable, "-m", "rl_online.commands.store", str(settings.HOME.models), model]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if made.returncode:
        raise click.ClickException(f"{model} was not added")
    return json.loads(made.stdout)


def slug(name: str) -> str:
    from django.utils.text import slugify

    return slugify(name.replace(".", "-"))[:60]
