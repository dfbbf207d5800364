"""What every test may ask for: a real PostgreSQL and Valkey, projects and the people in them, the model, outside data.

Nothing is started until a test asks for it. The database is used through the app's own role, so row-level security is
in force; the alias `owner` migrates.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction

from strop.home import Home
from strop.local import service
from strop.local.postgres import APP, Postgres, grant
from strop.local.service import Service
from strop.local.valkey import Valkey
from tests.prepared import copy_home, prepared_home

CHECKOUT = Path(__file__).resolve().parents[1]
HOUR_S, LAST_S = 3600, 15


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """No test begins in the last seconds of an hour: what it makes and asks for lie in the same hour, day and month."""
    left = HOUR_S - time.time() % HOUR_S
    if left < LAST_S:
        time.sleep(left)


def unavailable(reason: str) -> None:
    """Skip on a laptop; under CI=true everything a test needs must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def undone() -> Iterator[None]:
    """Whatever is written to the database in the block is gone after it; made rows serve many requests so."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def running(what: Service, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = service.start(what, output=output.fileno())
        try:
            service.wait_ready(process, what)
            yield process
        finally:
            service.stop(process, what)


@pytest.fixture(scope="session")
def home() -> Home:
    """The home of this run of the tests (STROP_HOME), a temporary folder."""
    assert settings.HOME.root == Path(os.environ["STROP_HOME"])
    return settings.HOME


@pytest.fixture(scope="session")
def postgres(home: Home) -> Iterator[Postgres]:
    """The running embedded PostgreSQL of the test home."""
    copy_home(prepared_home(), home)
    for alias, role in (("default", "app"), ("owner", "owner")):
        settings.DATABASES[alias]["PASSWORD"] = home.secret(f"postgres-{role}")
    server = Postgres.of(home)
    throw_away = server.service(fsync="off", full_page_writes="off", synchronous_commit="off")
    for _process in running(throw_away, home.logs / "postgres.log"):
        server.ensure_database()
        yield server
        connections.close_all()


# What a test committed goes again: as rows, for emptying every table by TRUNCATE makes some 400 files anew, half a
# second each time. What somebody still writes is waited for, as TRUNCATE would.
EMPTY_TABLES = """
CREATE OR REPLACE FUNCTION empty_tables() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET session_replication_role = replica AS $$
DECLARE one regclass;
BEGIN
  FOR one IN SELECT oid::regclass FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
      AND relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission') ORDER BY oid
  LOOP
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', one);
    EXECUTE format('DELETE FROM %s', one);
  END LOOP;
END $$
"""


@pytest.fixture(scope="session")
def django_db_setup(request: pytest.FixtureRequest, django_db_blocker) -> Iterator[None]:
    """Migrate as the owner; the app role may also truncate, in tests only, so that a test can commit."""
    with django_db_blocker.unblock():
        if settings.DATABASE_URL:
            name = settings.DATABASES["default"]["NAME"]
            assert name.startswith("test"), f"tests empty their database; DATABASE_URL names {name!r}, not test..."
            app = settings.DATABASES["default"]["USER"]
        else:
            request.getfixturevalue("postgres")
            app = APP
        owner = connections["owner"]
        owner.ensure_connection()
        grant(owner.connection, database=owner.settings_dict["NAME"], app=app)
        call_command("migrate", database="owner", verbosity=0, interactive=False)
        with owner.cursor() as cursor:
            cursor.execute(f'GRANT TRUNCATE ON ALL TABLES IN SCHEMA public TO "{app}"')
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            if cursor.fetchone() == (True,):
                cursor.execute(EMPTY_TABLES)
                connections["default"].ops.sql_flush = lambda *_, **__: ["SELECT empty_tables();"]
        owner.close()
    yield
    with django_db_blocker.unblock():
        connections.close_all()


@pytest.fixture(scope="session")
def valkey(home: Home) -> Iterator[Valkey]:
    """The running embedded Valkey of the test home: settings.CELERY_BROKER_URL points at it."""
    server = Valkey.of(home)
    for _process in running(server.service(), home.logs / "valkey.log"):
        yield server


# --- People: owner, engineer, reviewer and viewer belong to `project`; stranger owns `other_project` only. ---


@pytest.fixture
def project(db):
    from registry.services import create_project

    return create_project("editor", "Editor")


@pytest.fixture
def other_project(db):
    from registry.services import create_project

    return create_project("other", "Other")


@pytest.fixture
def member(db) -> Callable:
    """member(project, role) -> a new user with that role, named after it."""
    from django.contrib.auth import get_user_model

    from registry.models import Member
    from registry.tenancy import tenant

    def make(project, role: str, *, username: str | None = None):
        user = get_user_model().objects.create_user(username or role, password=f"{role}-password")
        with tenant(project.id):
            Member.objects.create(user=user, role=role)
        return user

    return make


@pytest.fixture
def owner(member, project):
    return member(project, "owner")


@pytest.fixture
def engineer(member, project):
    return member(project, "engineer")


@pytest.fixture
def reviewer(member, project):
    return member(project, "reviewer")


@pytest.fixture
def viewer(member, project):
    return member(project, "viewer")


@pytest.fixture
def stranger(member, other_project):
    """A member of another project, and of nothing here."""
    return member(other_project, "owner", username="stranger")


@pytest.fixture
def api_key(project) -> Callable[..., str]:
    """api_key("ingest", "read") -> the key's text; api_key(..., project=other) for another project."""
    from registry.services import create_key
    from registry.tenancy import tenant

    def make(*scopes: str, project=project) -> str:
        with tenant(project.id):
            return create_key("test", list(scopes), actor="test")[0]

    return make


# --- The real model and data from outside ---


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """SmolLM2-135M-Instruct as safetensors, converted once and kept: STROP_MODEL_CACHE or ~/.cache/strop."""
    cache = Path(os.environ.get("STROP_MODEL_CACHE") or Path.home() / ".cache" / "strop")
    command = [sys.executable, "-m", "rl_online.commands.store", str(cache), "smollm2"]
    made = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    if made.returncode:
        unavailable(f"SmolLM2 could not be had: {made.stderr.strip()[-400:]}")
    return Path(json.loads(made.stdout)["folder"])


def outside(variable: str, name: str) -> Path:
    folder = Path(os.environ.get(variable, "")) / name
    if not os.environ.get(variable) or not folder.exists():
        unavailable(f"needs {name}; set {variable} to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def samples() -> Callable[[str], Path]:
    """samples("inspect") -> that folder of evaluation logs from other tools (STROP_SAMPLES)."""
    return lambda name="": outside("STROP_SAMPLES", name)


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """data("realhumaneval") -> that outside data set (STROP_DATA)."""
    return lambda name="": outside("STROP_DATA", name)
