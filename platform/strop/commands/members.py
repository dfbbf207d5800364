import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option, say


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
    from django.conf import settings
    from django.urls import reverse

    from registry import members

    with inside_project(project) as found:
        added = members.add(username, role, actor=actor())
    link = settings.PUBLIC_URL + reverse("console:sign-in-link", args=[added.token])
    name = added.member.user.get_username()
    if as_json:
        return print_json({"username": name, "role": added.member.role, "project": found.slug, "link": link})
    say(f"{name} is {added.member.role} of project {found.slug}. This link signs them in once, within a day:")
    click.echo(link)
    return None
