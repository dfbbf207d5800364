from datetime import timedelta

import click

from strop.commands.base import (
    actor,
    inside_project,
    json_option,
    needs_running,
    print_json,
    project_option,
    say,
    table,
)


@click.group("keys", epilog="Example: strop keys create --scopes ingest,infer")
def command() -> None:
    """API keys of a project."""


@command.command("create", epilog="Example: strop keys create --scopes ingest,infer --name editor-plugin")
@click.option("--scopes", required=True, metavar="A,B", help="Of ingest, read, infer, train, admin.")
@click.option("--name", default="cli", show_default=True, help="What it is for.")
@click.option("--days", type=click.IntRange(min=1), help="Until it expires. Default: never.")
@project_option
@json_option
@needs_running
def create(scopes: str, name: str, days: int | None, project: str | None, as_json: bool) -> None:
    """Make a key. Its text is shown this once; only its hash is kept.

    \b
    JSON: {"key", "prefix", "name", "scopes", "expires_at", "project"}
    """
    from django.utils import timezone

    from registry.services import create_key

    expires_at = timezone.now() + timedelta(days=days) if days else None
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    with inside_project(project) as found:
        text, key = create_key(name, wanted, actor=actor(), expires_at=expires_at)
    if as_json:
        return print_json(
            {
                "key": text,
                "prefix": key.prefix,
                "name": name,
                "scopes": key.scopes,
                "expires_at": expires_at and expires_at.isoformat(),
                "project": found.slug,
            }
        )
    say(f"Key {name} of project {found.slug} for {', '.join(key.scopes)}, shown this once:")
    click.echo(text)
    return None


@command.command("list", epilog="Example: strop keys list")
@project_option
@json_option
@needs_running
def list_(project: str | None, as_json: bool) -> None:
    """Show the keys by prefix, never their text.

    \b
    JSON: {"keys": [{"prefix", "name", "scopes", "live", "created_at", "last_used_at"}]}
    """
    from registry.models import ApiKey

    with inside_project(project):
        rows = [
            {
                "prefix": key.prefix,
                "name": key.name,
                "scopes": key.scopes,
                "live": key.is_live,
                "created_at": key.created_at.isoformat(timespec="seconds"),
                "last_used_at": key.last_used_at and key.last_used_at.isoformat(timespec="seconds"),
            }
            for key in ApiKey.objects.order_by("created_at")
        ]
    if as_json:
        return print_json({"keys": rows})
    click.echo(table([row | {"scopes": ",".join(row["scopes"])} for row in rows]))
    return None


@command.command("revoke", epilog="Example: strop keys revoke strop_0123456789")
@click.argument("prefix")
@click.option("--reason", default="", help="Why. Kept in the audit trail.")
@project_option
@json_option
@needs_running
def revoke(prefix: str, reason: str, project: str | None, as_json: bool) -> None:
    """Make a key open nothing from now on.

    \b
    JSON: {"prefix", "revoked_at"}
    """
    from registry.services import revoke_key

    with inside_project(project):
        key = revoke_key(prefix, actor=actor(), reason=reason)
    if as_json:
        return print_json({"prefix": prefix, "revoked_at": key.revoked_at.isoformat()})
    click.echo(f"{prefix} opens nothing any more")
    return None
