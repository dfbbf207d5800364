"""How long the server takes for each heavy page over a million turns and ten million signals: p95, aim 300 ms.

An embedded home of its own is filled by the server itself (INSERT ... SELECT of a month's traffic: 20 checkpoints, one
external model, users with many turns, late signals, orphans), the hourly counts are rebuilt and checked against their
rows, and every page is asked for through Django, in the ranges that its tabs offer. Time is that of the whole request:
session, tenant, queries, figures, template. `--turns N` scales it down; `--keep FOLDER` keeps the home, and asks it
again when it is there.
"""
# ruff: noqa: E402 - the home is chosen before Django reads its settings

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "platform")]
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--turns", type=int, default=1_000_000)
parser.add_argument("--rounds", type=int, default=8, help="how often each address is asked, after once to warm up")
parser.add_argument("--keep", type=Path, help="keep the home here")
parser.add_argument("--only", default="", help="pages to ask, by name, with commas")
parser.add_argument("--explain", action="store_true", help="print the three slowest queries of each page's slowest ask")
OPTIONS = parser.parse_args()
HOME = OPTIONS.keep or Path(tempfile.mkdtemp(prefix="strop-dashboards-"))
os.environ["STROP_HOME"] = str(HOME)
os.environ["DJANGO_SETTINGS_MODULE"] = "strop.settings"
os.environ.setdefault("STROP_LOG_LEVEL", "ERROR")

import django

django.setup()

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import NoReverseMatch, reverse

from evals.models import Benchmark
from feedback.services import rollups
from registry.models import Project
from registry.services import create_project, find_project
from registry.tenancy import tenant
from strop.local import service
from strop.local.postgres import Postgres
from tests.console import factories

AIM_MS = 300
DAYS = 30
VERSIONS = 20
SIGNALS_PER_TURN = 10
TURNS_PER_SESSION = 8
TURNS_PER_USER = 400
RANGES = ("1h", "1d", "7d", "30d")


@contextmanager
def running_database() -> Iterator[None]:
    server = Postgres.of(settings.HOME)
    settings.HOME.logs.mkdir(parents=True, exist_ok=True)
    with (settings.HOME.logs / "postgres.log").open("ab") as log:
        what = server.service(fsync="off", synchronous_commit="off", max_wal_size="4GB")
        process = service.start(what, output=log.fileno())
        try:
            service.wait_ready(process, what)
            server.ensure_database()
            call_command("migrate", database="owner", verbosity=0)
            settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
            yield
        finally:
            connections.close_all()
            service.stop(process, what)
            if OPTIONS.keep is None:
                for folder in {settings.HOME.root, settings.HOME.data.parent, settings.HOME.sockets}:
                    shutil.rmtree(folder, ignore_errors=True)


def fill(num_turns: int) -> Project:
    """A project with its month; returns at once when the home has it."""
    with contextlib.suppress(Exception):
        return find_project("big")
    owner = get_user_model().objects.create_user("owner")
    project = create_project("big", "Big", owner=owner)
    with tenant(project.id):
        learning_rows()
    started = time.perf_counter()
    write_month(project, num_turns)
    say(f"{num_turns:,} turns and {num_turns * SIGNALS_PER_TURN:,} signals in {time.perf_counter() - started:.0f} s")
    with connections["owner"].cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")  # as autovacuum does in time
    started = time.perf_counter()
    hours = rollups.rebuild(project.id)
    say(f"{hours:,} hours counted in {time.perf_counter() - started:.0f} s")
    with connections["owner"].cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return project


def learning_rows() -> None:
    """Twenty promoted checkpoints, each with its batch, update and gate report."""
    policy = factories.make_policy()
    last = policy.checkpoints.get()
    for version in range(2, VERSIONS + 1):
        state = "serving" if version == VERSIONS else "retired"
        checkpoint = factories.make_checkpoint(policy, version, last, state=state)
        run = factories.make_update(
            policy, factories.make_batch(policy, []), parent=last, version=version, checkpoint=checkpoint
        )
        factories.make_report(checkpoint, last, gain=0.02, run=run)
        factories.Checkpoint.objects.filter(pk=last.pk).update(state="retired")
        previous, last = last, checkpoint
    factories.Deployment.objects.update(checkpoint=last, previous=previous, fence=VERSIONS)
    factories.EngineHolding.objects.create(engine="engine-1", checkpoint=last, tree_digest=last.tree_digest)


def write_month(project: Project, num_turns: int) -> None:
    """A day at a time, as the tables' owner and without triggers: they are what `rebuild` is for."""
    names = {
        "project": project.id, "turns": num_turns, "sessions": -(-num_turns // TURNS_PER_SESSION),
        "users": max(1, num_turns // TURNS_PER_USER), "seconds": DAYS * 86_400, "versions": VERSIONS,
        "per_session": TURNS_PER_SESSION, "per_turn": SIGNALS_PER_TURN,
    }  # fmt: skip
    with connections["owner"].cursor() as cursor:
        give_defaults()
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SELECT date_trunc('hour', now()) + interval '10 minutes'")
        names["end"] = cursor.fetchone()[0]
        for month in range(3):
            cursor.execute(
                "SELECT feedback_ensure_payload_month(%s::timestamptz - %s * interval '20 days')", [names["end"], month]
            )
        cursor.execute(SESSIONS, names)
        for day in range(DAYS):
            names |= {"first": num_turns * day // DAYS, "last": num_turns * (day + 1) // DAYS - 1}
            for statement in (TURNS, LABELS, PAYLOADS, SIGNALS, FLAGS):
                cursor.execute(statement, names)
        cursor.execute(CHECKPOINTS, names)
        cursor.execute(OUTCOMES, names)
        cursor.execute(SAMPLES, names)
        cursor.execute(SCORES, names)
        for table, column in (("feedback_turn", "id"), ("feedback_label", "id"), ("feedback_agentsession", "id")):
            cursor.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), (SELECT max({column}) FROM {table}))"
            )
        cursor.execute("SET session_replication_role = DEFAULT")


def made(turn: str) -> str:
    """When this turn was made: all about a turn follows from its number, so a run can be repeated."""
    return f"%(end)s::timestamptz - interval '1 second' * (%(seconds)s::float8 * (%(turns)s - {turn}) / %(turns)s)"


AT = made("i")
CHANCE = "((i * 2654435761) %% 4294967296) / 4294967296.0"  # in [0, 1), the same for the same turn
SESSION = "(i / %(per_session)s)"
VERSION = "(1 + i * %(versions)s / %(turns)s)"
OUTCOME = (
    f"CASE WHEN {CHANCE} < .38 + .005 * {VERSION} THEN 'accept' WHEN {CHANCE} < .7 THEN 'reject' ELSE 'silence' END"
)
IS_SETTLED = "i < %(turns)s - 200"
LAST_OF_SESSION = "least(%(turns)s - 1, (s + 1) * %(per_session)s - 1)"
SESSIONS = f"""
INSERT INTO feedback_agentsession (id, project_id, session_id, "user", surface, first_at, last_at, num_turns)
SELECT 1000 + s, %(project)s, 'chat-' || s, 'user-' || (s * 7919) %% %(users)s,
  (ARRAY['completion', 'chat', 'review'])[1 + s %% 3], {made("s * %(per_session)s")}, {made(LAST_OF_SESSION)},
  %(per_session)s
FROM generate_series(0, %(sessions)s - 1) s
"""
TURNS = f"""
INSERT INTO feedback_turn (id, project_id, turn_id, session_id, index, at, received_at, policy, version, model, surface,
  language, "user", source, sampling, finish_reason, error, input_tokens, cache_read_tokens, cache_write_tokens,
  output_tokens, reasoning_tokens, ttft_ms, latency_ms, num_completion_chars, has_logprobs, is_shown, label_id, outcome,
  settled_at, settle_due)
SELECT 1000 + i, %(project)s, 't-' || lpad(i::text, 9, '0'), 1000 + {SESSION}, i %% %(per_session)s, {AT}, {AT},
  CASE WHEN i %% 20 > 0 THEN 'editor' END, CASE WHEN i %% 20 > 0 THEN {VERSION} END,
  CASE WHEN i %% 20 = 0 THEN 'gpt-4.1' END, (ARRAY['completion', 'chat', 'review'])[1 + {SESSION} %% 3],
  (ARRAY['python', 'rust', 'go', 'sql'])[1 + i %% 4], 'user-' || ({SESSION} * 7919) %% %(users)s,
  CASE WHEN i %% 50 = 7 THEN 'eval' WHEN i %% 50 = 8 THEN 'import' ELSE 'production' END,
  '{{"temperature": 1.0, "top_p": 1.0, "top_k": 0, "logprobs_mode": "processed"}}', 'stop',
  CASE WHEN i %% 997 = 0 THEN 'the engine was restarted' END, 40 + i %% 400, 20 * (i %% 3), 0, 5 + i %% 90, 0,
  20 + 400 * ({CHANCE}) ^ 3, 60 + 4000 * ({CHANCE}) ^ 4, 20 + i %% 300, i %% 20 > 0, i %% 50 <> 7,
  CASE WHEN {IS_SETTLED} THEN 1000 + i END, CASE WHEN {IS_SETTLED} THEN {OUTCOME} END,
  CASE WHEN {IS_SETTLED} THEN {AT} + interval '40 seconds' END, {AT} + interval '2 minutes'
FROM generate_series(%(first)s::bigint, %(last)s) i
"""
LABELS = f"""
INSERT INTO feedback_label (id, project_id, turn_id, recipe_version, outcome, value, reason, created_at)
SELECT 1000 + i, %(project)s, 1000 + i, 1, {OUTCOME}, 0.5, 'accepted', {AT} + interval '40 seconds'
FROM generate_series(%(first)s::bigint, %(last)s) i WHERE {IS_SETTLED}
"""
PAYLOADS = f"""
INSERT INTO feedback_turnpayload (project_id, turn_id, at, messages, completion)
SELECT %(project)s, 't-' || lpad(i::text, 9, '0'), {AT},
  jsonb_build_array(jsonb_build_object('role', 'user', 'content', 'Complete this function: def f' || i || '(a, b):')),
  '    return sorted([a, b])[' || i %% 2 || ']  # ' || md5(i::text)
FROM generate_series(%(first)s::bigint, %(last)s) i
"""
SIGNALS = f"""
INSERT INTO feedback_usersignal (project_id, signal_id, turn_ref, turn_id, kind, value, text, at, received_at, "user")
SELECT %(project)s, 's-' || lpad(i::text, 9, '0') || '-' || k,
  CASE WHEN (i * 10 + k) %% 400 = 0 THEN 'never-' ELSE 't-' END || lpad(i::text, 9, '0'),
  CASE WHEN (i * 10 + k) %% 400 <> 0 THEN 1000 + i END,
  (ARRAY['shown', 'accept', 'copy', 'persist', 'edit', 'reject', 'retry', 'comment', 'thumbs', 'follow_up'])[1 + k],
  CASE WHEN k = 3 THEN .8 END, CASE WHEN k IN (4, 7, 9) THEN 'and now ' || md5(i::text) END,
  {AT} + k * interval '3 seconds', {AT} + k * interval '3 seconds', 'user-' || ({SESSION} * 7919) %% %(users)s
FROM generate_series(%(first)s::bigint, %(last)s) i, generate_series(0, %(per_turn)s - 1) k
"""
FLAGS = f"""
INSERT INTO feedback_flag (project_id, turn_id, rule, reason, state, created_at)
SELECT %(project)s, 1000 + i, (ARRAY['tests_disagree', 'empty', 'length_jump', 'retries'])[1 + i / 100 %% 4],
  'the tests pass, the user rejected it', CASE WHEN i %% 300 = 0 THEN 'open' ELSE 'resolved' END,
  {AT} + interval '1 minute'
FROM generate_series(%(first)s::bigint, %(last)s) i WHERE i %% 100 = 0
"""
OUTCOMES = """
INSERT INTO feedback_outcomecount (project_id, hour, outcome, count)
SELECT %(project)s, date_trunc('hour', %(end)s::timestamptz) - h * interval '1 hour', outcome, 100 + h
FROM generate_series(0, 719) h, unnest(ARRAY['accepted', 'duplicate', 'invalid', 'conflict', 'request:401']) outcome
"""
CHECKPOINTS = f"""
UPDATE registry_checkpoint SET created_at = {made("%(turns)s::float8 * (version - 1) / %(versions)s")}
WHERE project_id = %(project)s
"""
SAMPLES = """
INSERT INTO rl_online_batchsample (project_id, batch_id, turn_ref, session_ref, label_id, slice, reward, baseline)
SELECT %(project)s, run.batch_id, turn.turn_id, 'chat', turn.label_id, 'completion', .5, .2
FROM rl_online_updaterun run CROSS JOIN LATERAL (
  SELECT turn_id, label_id FROM feedback_turn WHERE project_id = %(project)s AND policy = 'editor'
    AND version = run.version - 1 AND source = 'production' AND settled_at IS NOT NULL ORDER BY id LIMIT 1024) turn
"""
SCORES = """
INSERT INTO evals_score (project_id, turn_ref, scorer, status, value, explanation)
SELECT %(project)s, turn_id, 'unit_tests', 'scored', (id %% 2)::float8, '3 of 3 tests passed'
FROM feedback_turn WHERE project_id = %(project)s AND id %% 20 = 1
"""
FILLED = (
    "feedback_agentsession", "feedback_turn", "feedback_label", "feedback_turnpayload", "feedback_usersignal",
    "feedback_flag", "rl_online_batchsample", "evals_score",
)  # fmt: skip


def give_defaults() -> None:
    """What Django fills in for a new row, the statements above leave to the column."""
    defaults = {"boolean": "false", "text": "''", "character varying": "''", "jsonb": "'{}'", "ARRAY": "'{}'"}
    with connections["owner"].cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_name = ANY(%s) AND "
            "is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO' AND column_name NOT LIKE '%%_id'",
            [list(FILLED)],
        )
        for table, column, kind in cursor.fetchall():
            default = "now()" if kind.startswith("timestamp") else defaults.get(kind, "0")
            cursor.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" SET DEFAULT {default}')


def pages(project: Project) -> dict[str, list[str]]:
    """Page -> its addresses; pages that this version does not have are left out."""
    newest, turn = "chat-100", "t-000000801"
    found: dict[str, list[str]] = {}

    def add(name: str, url: str, *parts: object, queries: tuple[str, ...] = ("",)) -> None:
        with contextlib.suppress(NoReverseMatch):
            address = reverse(f"console:{url}", args=[project.slug, *parts])
            found[name] = [f"{address}?{query}" for query in queries]

    ranges = tuple(f"range={one}" for one in RANGES)
    asked = (*ranges, "range=30d&q=outcome:reject", "range=7d&q=checkpoint:editor@19 source:production")
    with tenant(project.id):
        update = factories.UpdateRun.objects.order_by("-version").first()
        report = factories.GateReport.objects.order_by("-id").first()
        benchmark = Benchmark.objects.first()
    add("overview", "overview", queries=ranges)
    add("sessions", "sessions", queries=(*ranges, "range=30d&q=outcome:reject"))
    add("sessions_facets", "sessions", queries=("range=7d&part=facets", "range=30d&part=facets"))
    add("turns", "turns", queries=asked)
    add("turns_facets", "turns", queries=("range=7d&part=facets", "range=30d&part=facets"))
    add("signals", "signals", queries=(*ranges, "range=30d&q=kind:reject"))
    add("signals_facets", "signals", queries=("range=7d&part=facets", "range=30d&part=facets"))
    add("session", "session", newest)
    add("turn", "turn", turn)
    add("flagged", "flagged", queries=("", "q=state:resolved&range=30d", "range=30d"))
    add("review", "review")
    add("review_agreement", "review-agreement")
    add("updates", "updates")
    add("update_trigger", "update-trigger")
    add("update", "update", update.id)
    add("checkpoints", "checkpoints")
    add("checkpoint", "checkpoint", f"editor@{VERSIONS}")
    add("deployments", "deployments")
    add("gates", "gates")
    add("gate", "gate", report.pk)
    add("compare", "compare", queries=("", f"a=editor@{VERSIONS - 1}&b=editor@{VERSIONS}"))
    add("win_rates", "win-rates")
    add("judges", "judges")
    add("costs", "costs", queries=ranges)
    add("ingestion", "ingestion", queries=ranges)
    add("recipes", "recipes")
    add("engines", "engines")
    add("alerts", "alerts")
    add("settings", "settings")
    wanted = {name for name in OPTIONS.only.split(",") if name}
    assert benchmark is None
    return {name: urls for name, urls in found.items() if not wanted or name in wanted}


def measure(project: Project) -> dict[str, float]:
    client = Client(HTTP_HOST="localhost")
    client.force_login(get_user_model().objects.get(username="owner"))
    results = {}
    for name, urls in pages(project).items():
        times: dict[str, list[float]] = {url: [] for url in urls}
        for number in range(OPTIONS.rounds + 1):
            for url in urls:
                took_ms = ask(client, url)
                if number:
                    times[url].append(took_ms)
        all_times = [one for of in times.values() for one in of]
        p95 = statistics.quantiles(all_times, n=20, method="inclusive")[-1] if len(all_times) > 1 else all_times[0]
        results[name] = round(p95, 1)
        slowest = max(times, key=lambda url: statistics.median(times[url]))
        say(f"{name:18} p95 {p95:7.0f} ms, slowest {slowest} {statistics.median(times[slowest]):.0f} ms")
        if OPTIONS.explain and p95 > AIM_MS:
            explain(client, slowest)
    return results


def ask(client: Client, url: str) -> float:
    started = time.perf_counter()
    response = client.get(url)
    body = response.getvalue()
    took_ms = 1000 * (time.perf_counter() - started)
    assert response.status_code == 200 and body, (url, response.status_code)
    return took_ms


def explain(client: Client, url: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        client.get(url)
    for query in sorted(captured.captured_queries, key=lambda one: -float(one["time"]))[:3]:
        say(f"    {1000 * float(query['time']):.0f} ms: {' '.join(query['sql'].split())[:1500]}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    with running_database():
        project = fill(OPTIONS.turns)
        differences = rollups.differences(project.id) if OPTIONS.turns <= 100_000 else []
        assert differences == [], differences[:5]
        results = {f"dashboards.p95_ms.{name}": value for name, value in measure(project).items()}
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    facts = {"turns": OPTIONS.turns, "signals": OPTIONS.turns * SIGNALS_PER_TURN, "aim_ms": AIM_MS}
    (folder / "dashboards.json").write_text(json.dumps({**results, **facts, "machine": machine}, indent=1))


if __name__ == "__main__":
    main()
