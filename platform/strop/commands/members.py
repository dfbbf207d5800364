from typing import TYPE_CHECKING

import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option, say

if TYPE_CHECKING:
    from registry.models import Member


@click.group("members", epilog="Example: strop members add ann@example.org --role reviewer")
def command() -> None:
    """Who belongs to a project."""


@command.command("add", epilog="Example: strop members add ann@example.org --role reviewer")
@click.argument("username")
@click.option("--role", default="viewer", show_default=True, help="Of owner, engineer, reviewer, viewer.")
@project_option
@json_option
@needs_running
def add(username: str, role: str, project: str | None, as_json: bool) -> None:
    """Make somebody a member, also who has an account because of another project.

    Prints a sign-in link for that person alone. An account that was there loses its password and its sessions.

    \b
    JSON: {"username", "role", "project", "link"}
    """
    from registry import members

    with inside_project(project) as found:
        added = members.add(username, role, actor=actor())
    _tell(added.member, added.token, found.slug, as_json=as_json)


@command.command("link", epilog="Example: strop members link owner")
@click.argument("username")
@project_option
@json_option
@needs_running
def link(username: str, project: str | None, as_json: bool) -> None:
    """Print a new sign-in link for a member who lost theirs, or whose first one ran out. Password and sessions stay.

    \b
    JSON: {"username", "role", "project", "link"}
    """
    from registry.errors import NotFound
    from registry.models import Member
    from registry.services import audit
    from registry.signin import sign_in_token

    with inside_project(project) as found:
        member = Member.objects.select_related("user").filter(user__username=username).first()
        if member is None:
            known = ", ".join(Member.objects.order_by("pk").values_list("user__username", flat=True)[:20])
            raise NotFound(f"no member {username!r} in project {found.slug}; its members: {known}")
        audit("make sign-in link", "member", username, actor=actor())
        _tell(member, sign_in_token(member.user), found.slug, as_json=as_json)


def _tell(member: "Member", token: str, project: str, *, as_json: bool) -> None:
    from django.conf import settings
    from django.urls import reverse

    address = settings.PUBLIC_URL + reverse("console:sign-in-link", args=[token])
    name = member.user.get_username()
    if as_json:
        return print_json({"username": name, "role": member.role, "project": project, "link": address})
    say(f"{name} is {member.role} of project {project}. This link signs them in once, within a day:")
    click.echo(address)
    return None
