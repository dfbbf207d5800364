"""Fill every table of a new database and dump it, with whatever version's code is on the path: see make_dump.py.

Only what commit 009af23 had may be used here; a later version that needs more gets a file of its own.
"""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import django

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"


def fill() -> None:
    from django.utils import timezone

    from registry.services import create_key, create_project
    from registry.tenancy import tenant
    from tests.console import factories

    now = timezone.now()
    owner = people()
    project = create_project("editor", "Editor", owner=owner, decision_window_s=30)
    gate = benchmark(project.id)
    with tenant(project.id):
        loop = factories.make_loop(num_turns=24)
        create_key("first", ["ingest", "infer"], actor="owner", created_by=owner)
        signals(loop, now)
        measured(list(gate.problems.order_by("problem_id")), gate, now)
    work(project.id, loop.turns[0].turn_id, now)


def people() -> Any:
    from django.contrib.auth.models import Group, Permission, User
    from django.contrib.sessions.backends.db import SessionStore

    owner = User.objects.create_user("owner")
    group, permission = Group.objects.create(name="staff"), Permission.objects.first()
    group.permissions.add(permission)
    owner.groups.add(group)
    owner.user_permissions.add(permission)
    SessionStore().save()
    return owner


def benchmark(project_id: Any) -> Any:
    from evals.scorers.scorer import ProblemSpec
    from evals.services.benchmarks import create_benchmark

    specs = [
        ProblemSpec(
            id=f"p{number}",
            prompt=f"def f{number}(",
            slices={"half": half, "family": f"family {number % 2}"},
            tests={"function": f"f{number}", "cases": [{"args": [number], "expected": number}]},
        )
        for number, half in enumerate(["seen", "seen", "unseen", "unseen"])
    ]
    return create_benchmark(project_id, "gate", specs, version=1, is_held_out=True)


def signals(loop: Any, now: Any) -> None:
    from feedback.labels import Recipe
    from feedback.models import LabelRecipe, LedgerItem, UserSignal
    from registry.models import PriceCard

    for number, turn in enumerate(loop.turns[:3]):
        LedgerItem.objects.create(item_id=turn.turn_id, kind="turn", body_hash=bytes([number] * 32))
    UserSignal.objects.create(signal_id="orphan", turn_ref="never-came", kind="accept", at=now, user="u-9")
    recipe = Recipe()
    LabelRecipe.objects.create(version=1, body=recipe.to_json(), digest=recipe.digest)
    prices = {"input_usd": 1, "output_usd": 2, "device_hour_usd": 3}
    PriceCard.objects.create(model="editor", valid_from=now - timedelta(days=30), **prices)


def measured(problems: list[Any], gate: Any, now: Any) -> None:
    from evals.models import Comparison, EvalRun, JudgeCall, JudgeVersion, Score

    done = {"benchmark": gate, "scorer": "execution", "state": "done", "finished_at": now}
    for version in (1, 2):
        run = EvalRun.objects.create(checkpoint=f"editor@{version}", sampling={"temperature": 0}, **done)
        for number, problem in enumerate(problems):
            is_infra = number == 3
            Score.objects.create(
                run=run,
                problem=problem,
                scorer="execution",
                status="infra" if is_infra else "scored",
                value=None if is_infra else float(number < version + 1),
                output="return n",
                usage={"input": 10, "output": 4},
                latency_ms=120.5,
                cost_usd="0.0000012",
                sandbox_level="zygote+landlock+seccomp",
            )
    judge = JudgeVersion.objects.create(name="pairwise", model="base", prompt_digest="2" * 64, parser_version="1")
    pair = {"left": "editor@1", "right": "editor@2", "left_text": "a", "right_text": "b"}
    for problem, verdict in zip(problems, ["left", "right", "tie", "invalid"], strict=True):
        compared = Comparison.objects.create(problem=problem, by="judge", judge=judge, verdict=verdict, **pair)
        for order in ("lr", "rl"):
            JudgeCall.objects.create(
                comparison=compared,
                judge=judge,
                order=order,
                cache_key=f"{problem.pk}{order}",
                verdict=verdict,
                raw="A",
                usage={"input": 50, "output": 1},
                latency_ms=80.0,
            )
    Comparison.objects.create(problem=problems[0], by="person", verdict="left", **pair)


def work(project_id: Any, turn: str, now: Any) -> None:
    from jobs.models import Job, ProcessBeat, ScheduleSlot

    ours = {"project_id": project_id, "run_at": now}
    Job.objects.create(kind="feedback.label", payload={"turns": [turn]}, state="done", finished_at=now, **ours)
    Job.objects.create(kind="rl_online.score_turn", state="quarantined", attempts=5, last_error="it failed", **ours)
    ScheduleSlot.objects.create(schedule="rl_online.consider", slot=now)
    ProcessBeat.objects.create(name="updater", kind="updater", pid=4242, version="0.1.0", started_at=now, seen_at=now)


def main(target: Path) -> None:
    """Writes plain SQL to `target` and prints the names of tables that are empty."""
    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection

    from strop.local import service
    from strop.local.postgres import Postgres

    server = Postgres.of(settings.HOME)
    what = server.service(fsync="off")
    process = service.start(what, output=subprocess.DEVNULL)
    try:
        service.wait_ready(process, what)
        server.ensure_database()
        call_command("migrate", database="owner", verbosity=0, interactive=False)
        fill()
        connection.close()
        address = [f"--host={settings.HOME.sockets}", "--username=strop_owner", "strop"]
        environment = {**os.environ, "PGPASSWORD": settings.HOME.secret("postgres-owner")}
        dump = [server.bin / "pg_dump", "--no-owner", "--no-privileges", f"--file={target}", *address]
        subprocess.run(dump, env=environment, check=True)
        with server.connect() as owner:
            names = [name for (name,) in owner.execute(TABLES)]
            empty = [name for name in names if owner.execute(f'SELECT count(*) FROM "{name}"').fetchone() == (0,)]
        print(" ".join(empty))
    finally:
        service.stop(process, what)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
