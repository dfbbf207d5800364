"""Whether the loop can turn: schema, jobs, processes' signs of life, engines, and settings for strangers' eyes."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from jobs.models import Job, JobState, ProcessBeat
from registry.models import Deployment
from registry.services import all_projects
from registry.tenancy import tenant
from rl_online.services.holdings import is_held, load_error
from strop.checks import check_settings
from strop.doctor.finding import Finding, broken, ok, warning
from strop.migrations_on_disk import unknown_migrations

STALE = timedelta(seconds=60)
WAITED = timedelta(seconds=60)


def migrations() -> Finding:
    connection = connections["default"]
    applied = MigrationRecorder(connection).applied_migrations()
    if newer := unknown_migrations([f"{app}.{name}" for app, name in applied]):
        return broken(
            "migrations",
            f"the database is newer than this Strop: {newer[0]} is not known here",
            why="Old code on a new schema fails in the middle of things.",
            fix="Install the Strop that last ran here, or restore a backup made before.",
        )
    executor = MigrationExecutor(connection)
    pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if pending:
        why = "Pages and jobs ask for columns that are not there."
        fix = "Restart strop up, which migrates; or python manage.py migrate --database owner."
        return broken("migrations", f"{len(pending)} are pending, first {pending[0][0]}", why=why, fix=fix)
    return ok("migrations", f"all {len(applied)} applied")


def jobs() -> Finding:
    now = timezone.now()
    waiting = Job.objects.filter(state=JobState.QUEUED, run_at__lt=now - WAITED).order_by("run_at").first()
    if waiting is not None:
        return broken(
            "jobs",
            f"{waiting.kind} has been due for {(now - waiting.run_at).total_seconds():.0f} s",
            why="Nobody picks up work: labels, updates and proofs stand still.",
            fix="See which process is missing: strop status. Its log: <home>/logs/worker.log or updater.log.",
        )
    given_up = Job.objects.filter(state=JobState.QUARANTINED).count()
    if given_up:
        return warning(
            "jobs",
            f"{given_up} given up after five attempts",
            why="What they were to do is not done; the reason is with each of them.",
            fix="Read the error under Settings, System; mend the cause and press replay.",
        )
    return ok("jobs", "none waits too long, none is given up")


def heartbeats(state: Mapping[str, Any]) -> Finding:
    """`state`: of the running supervisor, {} where none runs. What it was told to leave out is not missed."""
    is_running = bool(state)
    started = {row["name"] for row in state.get("processes", [])}
    since = datetime.fromisoformat(state["started_at"].replace("Z", "+00:00")) if state else None
    beats = [
        beat
        for beat in ProcessBeat.objects.order_by("name")
        if since is None or beat.kind in started or beat.seen_at >= since
    ]
    seen = [beat for beat in beats if beat.seen_at > timezone.now() - STALE]
    silent = sorted({beat.kind for beat in beats} - {beat.kind for beat in seen})
    names = ", ".join(sorted({beat.kind for beat in seen})) or "nobody"
    if is_running and silent:
        return warning(
            "heartbeats",
            f"{names} alive; {', '.join(silent)} silent for more than a minute",
            why="A process that says nothing has ended, hangs, or cannot reach the database.",
            fix="strop status shows pids and restarts; its log is in <home>/logs.",
        )
    return ok("heartbeats", f"{names} alive")


def engines() -> Finding:
    """Whether what serves is held by an engine, of every policy of every project."""
    serving, missing = [], []
    for project in all_projects():
        with tenant(project.id):
            rows = Deployment.objects.filter(alias="default").select_related("checkpoint__policy")
            for checkpoint in [row.checkpoint for row in rows]:
                serving.append(str(checkpoint))
                if not is_held(checkpoint):
                    missing.append(f"{checkpoint} {load_error(checkpoint)}".strip())
    if missing:
        return broken(
            "engines",
            f"no engine has said in ten minutes that it holds {'; '.join(missing)[:400]}",
            why="Completions of that policy are refused with 503 until one does.",
            fix="strop status: does the engine run? Its log: <home>/logs/engine.log.",
        )
    return ok("engines", f"hold {', '.join(serving)}" if serving else "nothing serves yet: strop models add")


def production() -> Finding:
    is_local = settings.HOST in ("127.0.0.1", "localhost", "::1")
    if is_local and not settings.PRODUCTION:
        return ok("production", f"listens on {settings.HOST} only; not set up for others to reach")
    problems = check_settings(None)
    if problems:
        return broken(
            "production",
            "; ".join(f"{problem.id} {problem.msg}" for problem in problems)[:600],
            why="Others can reach this machine: cookies, keys and links would be open to whoever listens.",
            fix=" ".join(str(problem.hint) for problem in problems)[:600],
        )
    return ok("production", f"{settings.PUBLIC_URL}, all settings safe")
