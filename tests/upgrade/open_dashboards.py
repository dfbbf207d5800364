"""Open the dashboards of project `editor` over the time of its turns; prints {page: {status, charts, rows}} as JSON.

A program of its own, since it works on another database than the tests. `charts` are those with data, `rows` the rows
of all tables. Counts by hour are brought up to date first, as the workers do within seconds.
"""

import json
import re
import sys
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import django

PAGES = {
    "overview": {},
    "ingestion": {},
    "compare": {"a": "editor@1", "b": "editor@2"},
    "win-rates": {},
    "judges": {},
    "costs": {},
    "gates": {},
    "updates": {},
    "checkpoints": {},
    "deployments": {},
    "engines": {},
    "alerts": {},
}


def told(html: str) -> dict[str, Any]:
    charts = re.findall(r'<div class="plot plot-\w+" data-figure="([^"]+)"', html)
    rows = sum(body.count("<tr") for body in re.findall(r"<tbody>(.*?)</tbody>", html, re.DOTALL))
    return {"charts": charts, "rows": rows}


def main() -> None:
    django.setup()
    from django.contrib.auth.models import User
    from django.db.models import Max, Min
    from django.test import Client

    from feedback.models import Turn
    from feedback.services.rollups import count_all_dirty
    from registry.services import find_project
    from registry.tenancy import tenant

    project = find_project("editor")
    with tenant(project.id):
        count_all_dirty(project.id)
        ends = Turn.objects.aggregate(first=Min("at"), last=Max("at"))
    day = timedelta(days=1)
    range_ = {"from": (ends["first"] - day).isoformat(), "to": (ends["last"] + day).isoformat()}
    client = Client(SERVER_NAME="localhost", raise_request_exception=False)
    client.force_login(User.objects.get(username="owner"))
    found = {}
    for name, query in PAGES.items():
        response = client.get(f"/p/editor/{name}?{urlencode(query | range_)}")
        found[name] = {"status": response.status_code} | told(response.content.decode())
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
