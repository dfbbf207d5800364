"""What must be there before the product's processes start: tables, an owner, a project, a key. Safe to repeat.

Run by the supervisor as `python -m strop.local.bootstrap`; prints one JSON object, see `Bootstrapped`.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import django
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from strop.migrations_on_disk import unknown_migrations


@dataclass(frozen=True, kw_only=True)
class Bootstrapped:
    project: str  # slug of the first project
    sign_in_path: str | None  # a one-time link for the owner, below the site's address; None when none is offered
    key: str | None  # the first key's text; None when it was made by an earlier start


class DatabaseTooNew(RuntimeError):
    """The database was used by a newer Strop than this one."""


def migrate() -> None:
    """Bring the schema up to this code. Raises DatabaseTooNew, and leaves such a database alone."""
    applied = MigrationRecorder(connections["owner"]).applied_migrations()
    if unknown := unknown_migrations([f"{app}.{name}" for app, name in applied]):
        raise DatabaseTooNew(
            f"this database was used by a newer Strop ({unknown[0]} is not known to {settings.CODE_VERSION}); "
            "install that version again, or restore a backup made before it"
        )
    call_command("migrate", database="owner", verbosity=0, interactive=False)


def ensure_first_rows(*, project: str, offers_sign_in: bool) -> Bootstrapped:
    """The owner, the project named by slug `project` and its key, unless a project is there already."""
    from django.contrib.auth import get_user_model

    from registry.models import Scope
    from registry.services import all_projects, create_key, create_project
    from registry.signin import sign_in_token
    from registry.tenancy import tenant

    users = get_user_model().objects
    owner = users.filter(username="owner").first() or users.create_user("owner")
    existing = all_projects()
    key = None
    if not existing:
        created = create_project(project, project.replace("-", " ").title(), owner=owner)
        with tenant(created.id):
            scopes = [Scope.INGEST, Scope.INFER, Scope.READ]
            key, _ = create_key("first", list(scopes), actor="strop", created_by=owner)
    return Bootstrapped(
        project=existing[0].slug if existing else project,
        sign_in_path=f"/sign-in/{sign_in_token(owner)}" if offers_sign_in or not existing else None,
        key=key,
    )


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")
    django.setup()
    Path(settings.STATIC_ROOT).mkdir(exist_ok=True)
    try:
        migrate()
    except DatabaseTooNew as error:
        sys.exit(str(error))
    if settings.PRODUCTION:
        found = run_checks(include_deployment_checks=True, databases=["default"])
        if unsafe := [problem for problem in found if problem.is_serious()]:
            told = "".join(f"\n  {problem.id} {problem.msg} {problem.hint}" for problem in unsafe)
            sys.exit(f"these settings are unsafe in production:{told}")
    first = ensure_first_rows(
        project=os.environ.get("STROP_PROJECT", "default"), offers_sign_in=not settings.PRODUCTION
    )
    print(json.dumps(asdict(first)))


if __name__ == "__main__":
    main()
