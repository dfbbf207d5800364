"""All checks in order. One that cannot run says so and stops no other."""

import os
from collections.abc import Iterator

import click

from strop import env
from strop.doctor import home as home_checks
from strop.doctor import machine
from strop.doctor.finding import Finding, Level, broken, skipped
from strop.home import Home
from strop.local.lock import is_locked, read_state

NEEDS_DATABASE = ("migrations", "jobs", "heartbeats", "engines")


def examine(home: Home) -> Iterator[Finding]:
    """Findings as they are made, machine first."""
    is_running = is_locked(home)
    host, port = _address(home, is_running)
    yield machine.python()
    yield machine.disk(home)
    yield machine.memory()
    yield machine.semaphores()
    yield machine.port(host, port, is_running=is_running)
    yield machine.torch()
    yield home_checks.folder(home)
    yield home_checks.running(home)
    yield home_checks.backup(home)
    yield machine.model_store(home)
    yield from _with_django(home, is_running=is_running)


def _with_django(home: Home, *, is_running: bool) -> Iterator[Finding]:
    from strop.commands.base import setup

    try:
        setup()
        from django.conf import settings
    except (click.ClickException, OSError) as error:
        text = error.message if isinstance(error, click.ClickException) else str(error)
        yield broken("settings", text, why="No process starts with it.", fix="Correct the variable it names.")
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
    yield work.heartbeats(is_running=is_running)
    yield work.engines()


def _address(home: Home, is_running: bool) -> tuple[str, int]:
    if is_running:
        url = str(read_state(home).get("url", ""))
        host, _, port = url.rpartition("//")[2].rpartition(":")
        return host, int(port or 0)
    try:
        return env.text("STROP_HOST", "127.0.0.1"), env.integer("STROP_PORT", 8000)
    except env.BadSetting:
        return os.environ.get("STROP_HOST", "127.0.0.1"), 8000
