"""Open every page of project `editor` as its owner in the database that DATABASE_URL names; prints {address: word}.

A program of its own, since it works on another database than the tests. Addresses are those of the access table; one
that names a kind of object which the old version did not have is left out, as "no such object then".
"""

import json
import sys
from typing import Any

import django


def facts(project: Any) -> dict[str, Any]:
    """Objects that the stored database holds, by the access table's names for them."""
    from feedback.models import Flag, Turn
    from jobs.models import Job
    from registry.tenancy import tenant
    from rl_online.models import UpdateRun

    with tenant(project.id):
        return {
            "session": "edit-0",
            "turn": Turn.objects.filter(session__session_id="edit-0").earliest("at").turn_id,
            "flag": Flag.objects.earliest("id").pk,
            "update": UpdateRun.objects.earliest("created_at").id,
            "checkpoint": "editor@3",
            "job": Job.objects.get(state="quarantined").pk,
        }


def main() -> None:
    django.setup()
    from django.contrib.auth.models import User
    from django.test import Client

    from registry.services import find_project
    from tests.console.test_access import TABLE

    client = Client(SERVER_NAME="localhost", raise_request_exception=False)
    client.force_login(User.objects.get(username="owner"))
    known = facts(find_project("editor"))
    opened: dict[str, str] = {}
    for name, row in TABLE.items():
        if row.post is not None:
            continue
        if not set(row.kwargs.values()) <= set(known):
            opened[name] = "no such object then"
            continue
        status = client.get(row.address(name, known)).status_code
        opened[name] = "as ever" if status == row.answers["owner"] else f"{status}, not {row.answers['owner']}"
    json.dump(opened, sys.stdout)


if __name__ == "__main__":
    main()
