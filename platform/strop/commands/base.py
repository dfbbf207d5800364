"""What the commands share: Django set up, errors as one line and status 1, one JSON object, the project meant."""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from registry.models import Project
    from strop.home import Home

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
project_option = click.option("--project", metavar="SLUG", help="Which project. Not needed when there is only one.")


def chosen_home() -> "Home":
    """The home of --home or STROP_HOME, without reading settings, which would make secrets in it."""
    from strop import env
    from strop.home import Home

    return Home(env.path("STROP_HOME", Path(__file__).resolve().parents[3] / ".strop"))


def setup() -> None:
    """Django with the settings of the chosen home, and where Strop runs there, with its address and production mode.

    Raises ClickException for a setting that cannot be read.
    """
    import django

    from strop.env import BadSetting
    from strop.local.lock import running_settings

    for name, value in running_settings(chosen_home()).items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")
    os.environ.setdefault("STROP_LOG_LEVEL", "WARNING")
    try:
        django.setup()
    except BadSetting as error:
        raise click.ClickException(str(error)) from None


def needs_running(function: F) -> F:
    """Decorator: sets Django up first, and turns what may go wrong for a caller into one line and a status.

    2 where the caller asked for something that cannot be meant, 1 for everything else.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        setup()
        from django.conf import settings
        from django.db import OperationalError

        from registry.errors import InvalidInput, StropError

        try:
            return function(*args, **kwargs)
        except InvalidInput as error:
            raise click.UsageError(f"{error.field}: {error}" if error.field else str(error)) from None
        except StropError as error:
            raise click.ClickException(f"{error.field}: {error}" if error.field else str(error)) from None
        except OperationalError as error:
            where = (
                f"{settings.HOME.root}; is `strop up` running there?" if not settings.DATABASE_URL else "DATABASE_URL"
            )
            raise click.ClickException(f"cannot reach the database of {where} {str(error).splitlines()[0]}") from None

    return wrapped  # type: ignore[return-value]


@contextmanager
def inside_project(slug: str | None) -> Iterator["Project"]:
    """The project named, or the only one, with its rows in sight."""
    from registry.errors import InvalidInput
    from registry.services import all_projects, find_project
    from registry.tenancy import tenant

    project = find_project(slug) if slug else None
    if project is None:
        projects = all_projects()
        if len(projects) != 1:
            names = ", ".join(known.slug for known in projects) or "none yet; run strop up"
            raise InvalidInput(f"say which one: {names}", field="--project")
        project = projects[0]
    with tenant(project.id):
        yield project


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False, allow_nan=False, default=str)
    sys.stdout.write("\n")


def say(text: str) -> None:
    """A line for people, on standard error."""
    click.echo(text, err=True)


def actor() -> str:
    """Who the audit trail names for a command: the user of the operating system."""
    import getpass

    return f"cli:{getpass.getuser()}"


def table(rows: list[dict[str, Any]]) -> str:
    """Columns as wide as they need to be; numbers to the right."""
    if not rows:
        return "nothing yet"
    names = list(rows[0])
    texts = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[index]) for line in texts) for index in range(len(names))]
    right = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in texts
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
