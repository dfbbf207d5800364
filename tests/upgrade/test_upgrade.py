"""Databases of earlier versions, migrated by this one; every page still opens. They are made by make_dump.py."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from strop.home import Home
from strop.local import binaries
from strop.local.postgres import APP, OWNER, Postgres

CHECKOUT = Path(__file__).resolve().parents[2]
DUMPS = sorted(Path(__file__).parent.glob("*.sql.gz"))
MAX_BYTES = 300_000
GROWS = ("django_migrations", "django_content_type", "auth_permission")  # a row for each new migration and model


def url(home: Home, role: str, secret: str, database: str) -> str:
    return f"postgresql://{role}:{home.secret(secret)}@/{database}?host={quote(str(home.sockets), safe='')}"


@pytest.fixture(params=DUMPS, ids=lambda path: path.name.split(".")[0])
def old_database(request: pytest.FixtureRequest, postgres: Postgres, home: Home) -> Iterator[dict[str, str]]:
    """The environment of processes that work on a database as that version left it."""
    name = f"old_{os.getpid()}_{request.param.name.split('.')[0]}"
    postgres.ensure_database(name)
    environment = {
        **os.environ,
        "DATABASE_URL": url(home, APP, "postgres-app", name),
        "DATABASE_OWNER_URL": url(home, OWNER, "postgres-owner", name),
        "DJANGO_SETTINGS_MODULE": "strop.settings",
        "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'platform'}",
    }
    psql = [binaries.postgres_bin(None) / "psql", "--quiet", "--set=ON_ERROR_STOP=1", environment["DATABASE_OWNER_URL"]]
    subprocess.run(psql, input=gzip.decompress(request.param.read_bytes()), check=True, stdout=subprocess.DEVNULL)
    yield environment
    with postgres.connect("postgres") as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=240
    )


def counts(environment: dict[str, str]) -> dict[str, int]:
    with psycopg.connect(environment["DATABASE_OWNER_URL"]) as connection:
        names = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        ).fetchall()
        return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in names}


def test_there_is_a_stored_database():
    assert any(path.name.startswith("009af23") for path in DUMPS)


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.name)
def test_a_stored_database_is_small_and_holds_no_secret(path: Path):
    assert path.stat().st_size < MAX_BYTES
    text = gzip.decompress(path.read_bytes()).decode()
    assert not re.search(r"pbkdf2_sha256\$|argon2|strop_[0-9a-f]{10}\.|PRIVATE KEY|/home/|/root/", text)


def test_an_old_database_is_migrated_as_strop_up_does_and_every_page_opens(old_database: dict[str, str]):
    before = counts(old_database)
    assert before["feedback_turn"] > 20 and min(before.values()) > 0, "every table has rows"
    started = run(old_database, "-m", "strop.local.bootstrap")
    assert started.returncode == 0, started.stderr
    assert json.loads(started.stdout)["project"] == "editor"
    after = counts(old_database)
    assert {name: after.get(name) for name in before if name not in GROWS} == {
        name: count for name, count in before.items() if name not in GROWS
    }

    opened = run(old_database, str(CHECKOUT / "tests" / "upgrade" / "open_pages.py"))
    assert opened.returncode == 0, opened.stderr[-4000:]
    pages = json.loads(opened.stdout)
    assert {name: said for name, said in pages.items() if said not in ("as ever", "no such object then")} == {}, (
        opened.stderr[-6000:]
    )
    assert [pages[name] for name in ("overview", "session", "update", "checkpoint", "system")] == ["as ever"] * 5


DASHBOARDS = {  # page -> charts that the rows of the old database fill; every page has rows in its tables, or charts
    "overview": {"rates", "over_time", "shares", "rounds"},
    "ingestion": {"received"},
    "compare": {"forest-1"},
    "win-rates": set(),
    "judges": set(),
    "costs": set(),
    "gates": set(),
    "updates": set(),
    "checkpoints": set(),
    "deployments": set(),
    "engines": set(),
}


@pytest.mark.parametrize("steps", ["at once", "one by one"])
def test_c18_no_dashboard_is_empty_after_every_migration_from_an_old_database(old_database: dict[str, str], steps: str):
    """CASES C.18: rows that an old version wrote fill the charts and tables of this one."""
    if steps == "one by one":
        migrated = run(old_database, str(CHECKOUT / "tests" / "upgrade" / "migrate_one_by_one.py"))
        assert migrated.returncode == 0, migrated.stderr[-4000:]
        assert int(migrated.stdout) > 10
    started = run(old_database, "-m", "strop.local.bootstrap")
    assert started.returncode == 0, started.stderr
    opened = run(old_database, str(CHECKOUT / "tests" / "upgrade" / "open_dashboards.py"))
    assert opened.returncode == 0, opened.stderr[-4000:]
    pages = json.loads(opened.stdout)
    assert {name: page["status"] for name, page in pages.items() if page["status"] != 200} == {}, opened.stderr[-6000:]
    assert {name: charts - set(pages[name]["charts"]) for name, charts in DASHBOARDS.items()} == {
        name: set() for name in DASHBOARDS
    }
    assert [name for name in DASHBOARDS if not pages[name]["rows"] and not pages[name]["charts"]] == []


def test_nothing_is_left_to_migrate_and_again_is_no_change(old_database: dict[str, str]):
    assert run(old_database, "-m", "strop.local.bootstrap").returncode == 0
    before = counts(old_database)
    assert run(old_database, "-m", "strop.local.bootstrap").returncode == 0
    assert counts(old_database) == before


def test_a_database_of_a_newer_version_is_refused_and_left_alone(old_database: dict[str, str]):
    assert run(old_database, "-m", "strop.local.bootstrap").returncode == 0
    with psycopg.connect(old_database["DATABASE_OWNER_URL"]) as connection:
        connection.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('registry', '9999_from_the_future', now())"
        )
    before = counts(old_database)
    refused = run(old_database, "-m", "strop.local.bootstrap")
    assert refused.returncode == 1
    assert "was used by a newer Strop (registry.9999_from_the_future is not known" in refused.stderr
    assert "Traceback" not in refused.stderr and counts(old_database) == before
