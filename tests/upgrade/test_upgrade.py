"""Databases of earlier versions, migrated by this one; every page still opens. They are made by make_dump.py."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@contextmanager
def database(postgres: Postgres, name: str) -> Iterator[dict[str, str]]:
    """The environment of processes that work on the database `name`, made where it is missing; gone at the end."""
    postgres.ensure_database(name)
    yield {
        **os.environ,
        "DATABASE_URL": url(postgres.home, APP, "postgres-app", name),
        "DATABASE_OWNER_URL": url(postgres.home, OWNER, "postgres-owner", name),
        "DJANGO_SETTINGS_MODULE": "strop.settings",
        "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'platform'}",
    }
    with postgres.connect("postgres") as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="module", params=DUMPS, ids=lambda path: path.name.split(".")[0])
def dump(request: pytest.FixtureRequest) -> Path:
    return request.param


@contextmanager
def restored(postgres: Postgres, dump: Path, name: str) -> Iterator[dict[str, str]]:
    """The database `name` as that version left it."""
    with database(postgres, name) as environment:
        psql = [binaries.postgres_bin(None) / "psql", "--quiet", "--set=ON_ERROR_STOP=1"]
        text = gzip.decompress(dump.read_bytes())
        subprocess.run([*psql, environment["DATABASE_OWNER_URL"]], input=text, check=True, stdout=subprocess.DEVNULL)
        yield environment


@dataclass(frozen=True)
class Migrated:
    """A database that `strop up` migrated all at once: how many rows it had, and what was said."""

    name: str
    before: dict[str, int]
    said: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def migrated(postgres: Postgres, dump: Path) -> Iterator[Migrated]:
    name = f"migrated_{os.getpid()}"
    with restored(postgres, dump, name) as environment:
        yield Migrated(name, counts(environment), run(environment, "-m", "strop.local.bootstrap"))


@pytest.fixture
def upgraded(postgres: Postgres, migrated: Migrated) -> Iterator[dict[str, str]]:
    """A copy of it, to work on."""
    name = f"copy_{os.getpid()}"
    with postgres.connect("postgres") as connection:
        names = {"new": sql.Identifier(name), "old": sql.Identifier(migrated.name)}
        connection.execute(sql.SQL("CREATE DATABASE {new} TEMPLATE {old}").format(**names))
    with database(postgres, name) as environment:
        yield environment


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


def test_an_old_database_is_migrated_as_strop_up_does_and_every_page_opens(
    migrated: Migrated, upgraded: dict[str, str]
):
    before = migrated.before
    assert before["feedback_turn"] > 20 and min(before.values()) > 0, "every table has rows"
    assert migrated.said.returncode == 0, migrated.said.stderr
    assert json.loads(migrated.said.stdout)["project"] == "editor"
    after = counts(upgraded)
    assert {name: after.get(name) for name in before if name not in GROWS} == {
        name: count for name, count in before.items() if name not in GROWS
    }

    opened = run(upgraded, str(CHECKOUT / "tests" / "upgrade" / "open_pages.py"))
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


@pytest.fixture
def one_by_one(postgres: Postgres, dump: Path) -> Iterator[dict[str, str]]:
    """The old database, migrated in many calls, then started."""
    with restored(postgres, dump, f"steps_{os.getpid()}") as environment:
        said = run(environment, str(CHECKOUT / "tests" / "upgrade" / "migrate_one_by_one.py"))
        assert said.returncode == 0, said.stderr[-4000:]
        assert int(said.stdout) > 10
        started = run(environment, "-m", "strop.local.bootstrap")
        assert started.returncode == 0, started.stderr
        yield environment


@pytest.mark.parametrize("steps", ["at once", "one by one"])
def test_c18_no_dashboard_is_empty_after_every_migration_from_an_old_database(
    request: pytest.FixtureRequest, dump: Path, steps: str
):
    """CASES C.18: rows that an old version wrote fill the charts and tables of this one."""
    environment = request.getfixturevalue("upgraded" if steps == "at once" else "one_by_one")
    opened = run(environment, str(CHECKOUT / "tests" / "upgrade" / "open_dashboards.py"))
    assert opened.returncode == 0, opened.stderr[-4000:]
    pages = json.loads(opened.stdout)
    assert {name: page["status"] for name, page in pages.items() if page["status"] != 200} == {}, opened.stderr[-6000:]
    assert {name: charts - set(pages[name]["charts"]) for name, charts in DASHBOARDS.items()} == {
        name: set() for name in DASHBOARDS
    }
    assert [name for name in DASHBOARDS if not pages[name]["rows"] and not pages[name]["charts"]] == []


def test_nothing_is_left_to_migrate_and_again_is_no_change(upgraded: dict[str, str]):
    before = counts(upgraded)
    assert run(upgraded, "-m", "strop.local.bootstrap").returncode == 0
    assert counts(upgraded) == before


def test_a_database_of_a_newer_version_is_refused_and_left_alone(upgraded: dict[str, str]):
    with psycopg.connect(upgraded["DATABASE_OWNER_URL"]) as connection:
        connection.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('registry', '9999_from_the_future', now())"
        )
    before = counts(upgraded)
    refused = run(upgraded, "-m", "strop.local.bootstrap")
    assert refused.returncode == 1
    assert "was used by a newer Strop (registry.9999_from_the_future is not known" in refused.stderr
    assert "Traceback" not in refused.stderr and counts(upgraded) == before
