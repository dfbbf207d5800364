"""All checks in order. One that cannot run says so and stops no other."""

from collections.abc import Iterator, Mapping

import click

from strop import env
from strop.doctor import home as home_checks
from strop.doctor import machine
from strop.doctor.finding import Finding, Level, broken, skipped
from strop.home import Home
from strop.local.lock import is_locked, read_state, running_settings

NEEDS_HOME = ("running", "backup", "models", "settings", "sandbox", "production", "database")
NEEDS_DATABASE = ("migrations", "jobs", "heartbeats", "engines")


def examine(home: Home) -> Iterator[Finding]:
    """Findings as they are made, machine first."""
    is_usable = home_checks.is_usable(home)
    is_running = is_usable and is_locked(home)
    told = running_settings(home) if is_running else {}
    host, port = _address(told)
    yield machine.python()
    yield machine.disk(home)
    yield machine.memory()
    yield machine.semaphores()
    yield machine.port(host, port, is_running=is_running)
    yield machine.torch()
    yield home_checks.folder(home)
    if not is_usable:
        yield from (skipped(name, "the home cannot be used") for name in NEEDS_HOME)
        return
    yield home_checks.running(home)
    yield home_checks.backup(home)
    yield machine.model_store(home)
    yield from _with_django(home, is_running=is_running)


def _with_django(home: Home, *, is_running: bool) -> Iterator[Finding]:
    from strop.commands.base import setup

    try:
        setup()
        from django.conf import settings
    except click.ClickException as error:
        yield broken("settings", error.message, why="No process starts with it.", fix="Correct the variable it names.")
        return
    except OSError as error:
        why = "The passwords and keys of this home are kept in files that only their owner may read."
        fix = "Make its files yours, or the disk writable; what is wrong with the folder stands under home and disk."
        yield broken("settings", f"{error.filename or home.root}: {error.strerror}", why=why, fix=fix)
        return
    from strop.doctor import servers, work

    yield machine.sandbox(allow_none=settings.SANDBOX_ALLOW_NONE)
    yield work.production()
    yield servers.programs(home)
    yield servers.broker(is_running=is_running)
    yield servers.clock(is_running=is_running)
    yield servers.database(is_running=is_running)
    if not servers.answers():
        yield from (skipped(name, "the database does not run") for name in NEEDS_DATABASE)
        return
    schema = work.migrations()
    yield schema
    if schema.level is Level.BROKEN:
        yield from (skipped(name, "needs the right schema first") for name in NEEDS_DATABASE[1:])
        return
    yield work.jobs()
    yield work.heartbeats(read_state(home) if is_running else {})
    yield work.engines()


def _address(told: Mapping[str, str]) -> tuple[str, int]:
    """Where Strop listens, or would: what it was started with, else the environment's."""
    host = told.get("STROP_HOST") or env.text("STROP_HOST", "127.0.0.1")
    try:
        return host, int(told.get("STROP_PORT", 0)) or env.integer("STROP_PORT", 8000)
    except env.BadSetting:
        return host, 8000
