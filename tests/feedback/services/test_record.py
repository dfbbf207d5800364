"""Taking items in under faults and in parallel: nothing acknowledged is lost, nothing is stored twice or by half."""

import os
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import OperationalError, connection

from feedback.models import AgentSession, LedgerItem, OutcomeCount, Turn, TurnPayload, UserSignal
from feedback.services import problem_links, staging
from feedback.services.record import record_items, record_turns
from feedback.wire import SignalItem, TurnItem
from jobs.models import Job
from registry.errors import Unavailable
from registry.models import Project
from registry.services import create_project
from registry.tenancy import tenant

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
CHECKOUT = Path(__file__).resolve().parents[3]


def turn(id: str, **fields) -> TurnItem:
    return TurnItem(id=id, session="s1", at=NOW, prompt="p", completion="c", **fields)


def signal(id: str, turn: str) -> SignalItem:
    return SignalItem(id=id, kind="accept", turn=turn, at=NOW)


ITEMS = [item for place in range(20) for item in (turn(f"t{place:02}"), signal(f"g{place:02}", f"t{place:02}"))]

CHILD = """
import sys, uuid
sys.path[:0] = [".", "platform"]
import django
django.setup()
from datetime import UTC, datetime
from feedback.services.record import record_items
from feedback.wire import TurnItem, SignalItem
now = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
items = [TurnItem(id="t1", session="s1", at=now, prompt="p", completion="c"),
         SignalItem(id="g1", kind="accept", turn="t1", at=now)]
receipt = record_items(uuid.UUID(sys.argv[1]), items, received_at=now)
print(*[item.outcome for item in receipt.items])
"""


def child(project, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same request by a process of its own, which may be told to die at a named point."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "strop.settings"} | environment
    command = [sys.executable, "-c", CHILD, str(project.id)]
    return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def shared_project(transactional_db) -> Project:
    """A project that other connections can see."""
    return create_project("shared", "Shared")


@pytest.mark.parametrize(
    ("point", "retry", "stored"),
    [("ingest.before_commit", "accepted accepted", 0), ("ingest.after_commit", "duplicate duplicate", 2)],
)
def test_a_kill_around_the_commit_leaves_all_or_nothing_and_a_retry_heals(
    point, retry, stored, shared_project, tmp_path
):
    log = tmp_path / "crashes"
    died = child(shared_project, CRASH_AT=point, CRASH_LOG=str(log))
    assert (died.returncode, log.read_text().split()) == (137, [point])
    with tenant(shared_project.id):
        assert (LedgerItem.objects.count(), Job.objects.count()) == (stored, stored and 1)
    again = child(shared_project)
    assert again.stdout.strip() == retry, again.stderr
    with tenant(shared_project.id):
        assert (Turn.objects.count(), UserSignal.objects.count(), Job.objects.count()) == (1, 1, 1)
        assert UserSignal.objects.get().turn == Turn.objects.get()


def test_the_same_items_from_four_connections_at_once_are_stored_once(shared_project):
    start = threading.Barrier(4)
    results: list[str] = []

    def worker(step: int) -> None:
        try:
            start.wait()
            items = ITEMS[::step]
            for first in range(0, len(items), 10):
                receipt = record_items(shared_project.id, items[first : first + 10], received_at=NOW)
                results.extend(item.outcome for item in receipt.items)
        finally:
            connection.close()

    threads = [threading.Thread(target=worker, args=(step,)) for step in (1, -1, 1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(results) == {"accepted": 40, "duplicate": 120}
    with tenant(shared_project.id):
        assert (Turn.objects.count(), UserSignal.objects.count(), LedgerItem.objects.count()) == (20, 20, 40)
        assert AgentSession.objects.get().num_turns == 20
        assert dict(OutcomeCount.objects.values_list("outcome", "count")) == {"accepted": 40, "duplicate": 120}


def test_a_connection_cut_in_the_middle_is_retried_once_whole(shared_project, monkeypatch):
    insert = staging.insert
    cuts = [1]

    def cut_once(*args, **options):
        inserted = insert(*args, **options)
        if cuts:
            cuts.pop()
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return inserted

    monkeypatch.setattr(staging, "insert", cut_once)
    receipt = record_items(shared_project.id, ITEMS, received_at=NOW)
    assert receipt.outcomes == {"accepted": 40}
    with tenant(shared_project.id):
        assert (Turn.objects.count(), LedgerItem.objects.count(), Job.objects.count()) == (20, 40, 1)


def test_a_database_that_stays_away_is_unavailable_and_nothing_is_stored(shared_project, monkeypatch):
    calls = []

    def fail(*_args, **_options):
        calls.append(1)
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(staging, "insert", fail)
    with pytest.raises(Unavailable) as refused:
        record_items(shared_project.id, ITEMS, received_at=NOW)
    assert (len(calls), refused.value.retry_after_s) == (2, 2)
    with tenant(shared_project.id):
        assert LedgerItem.objects.count() == 0


@pytest.mark.django_db
def test_a_turn_linked_to_a_held_out_problem_is_invalid_and_the_rest_are_taken(project, monkeypatch):
    monkeypatch.setattr(problem_links, "_checkers", [])
    problem_links.register(lambda links: {link: "held out" for link in links if link.startswith("secret@")})
    items = [turn("t1", problem="secret@1/7"), turn("t2", problem="open@1/7"), turn("t3")]
    receipt = record_items(project.id, items, received_at=NOW)
    assert [(item.outcome, item.field) for item in receipt.items] == [
        ("invalid", "problem"), ("accepted", None), ("accepted", None),
    ]  # fmt: skip


@pytest.mark.django_db
def test_a_turn_of_the_gateway_is_an_ordinary_item_of_the_ledger(project):
    sent = turn("t1", weight_versions=[(0, 1, 3)], completion_token_ids=[5], logprobs=[-0.5], prompt_token_ids=[1])
    assert record_turns(project.id, [sent], received_at=NOW).outcomes == {"accepted": 1}
    assert record_items(project.id, [sent], received_at=NOW).outcomes == {"duplicate": 1}
    with tenant(project.id):
        assert Turn.objects.get().has_logprobs


@pytest.mark.django_db
def test_a_model_that_says_nul_is_recorded_with_a_replacement_character(project):
    record_turns(project.id, [TurnItem(id="t1", session="s", at=NOW, prompt="p", completion="a\0b")], received_at=NOW)
    with tenant(project.id):
        assert TurnPayload.objects.get(project_id=project.id).completion == "a\ufffdb"


@pytest.mark.django_db
def test_payloads_of_months_far_apart_are_stored(project):
    moments = [datetime(1970, 1, 1, tzinfo=UTC), datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC), NOW]
    items = [TurnItem(id=str(at), session="s", at=at, prompt="p", source="import") for at in moments]
    assert record_items(project.id, items, received_at=NOW).outcomes == {"accepted": 3}
    with tenant(project.id):
        assert TurnPayload.objects.filter(project_id=project.id).count() == 3


@pytest.mark.django_db
def test_a_session_gathers_its_turns_whatever_their_order(project):
    times = [datetime(2026, 11, 30, hour, tzinfo=UTC) for hour in (3, 1, 2)]
    for place, at in enumerate(times):
        item = TurnItem(id=f"t{place}", session="s", at=at, prompt="p", user=None if place else "u")
        record_items(project.id, [item], received_at=NOW)
    with tenant(project.id):
        session = AgentSession.objects.get()
    assert (session.first_at, session.last_at, session.num_turns, session.user) == (times[1], times[0], 3, "u")


def test_the_first_items_of_a_month_may_come_from_many_connections_at_once(shared_project):
    at = datetime(1971, 5, 5, tzinfo=UTC)  # no other test stores anything there
    start, outcomes = threading.Barrier(4), []

    def worker(place: int) -> None:
        try:
            start.wait()
            item = TurnItem(id=f"t{place}", session=f"s{place}", at=at, prompt="p", source="import")
            outcomes.append(record_items(shared_project.id, [item], received_at=NOW).outcomes)
        finally:
            connection.close()

    threads = [threading.Thread(target=worker, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [{"accepted": 1}] * 4
