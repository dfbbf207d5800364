"""Labels as rows: settled once, corrected later, the same whatever the order of arrival."""

import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feedback.events import turns_settled
from feedback.models import AgentSession, Label, LedgerItem, OutcomeCount, Turn, TurnPayload, UserSignal
from feedback.services import label
from feedback.services.record import record_items
from feedback.wire import SignalItem, TurnItem
from jobs.models import Job
from jobs.services import claim_next, run
from registry.services import create_project
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db

CHECKOUT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
LATER = NOW + timedelta(seconds=121)


def turn(id: str = "t1", session: str = "s1", seconds: float = 0, **fields) -> TurnItem:
    moment = NOW + timedelta(seconds=seconds)
    return TurnItem(id=id, session=session, at=moment, prompt="p", completion="c", user="u", **fields)


def signal(id: str, kind: str = "accept", turn: str = "t1", seconds: float = 3, **fields) -> SignalItem:
    return SignalItem(id=id, kind=kind, turn=turn, at=NOW + timedelta(seconds=seconds), user="u", **fields)


@pytest.fixture
def record(project):
    return lambda *items, at=NOW: record_items(project.id, items, received_at=at)


@pytest.fixture
def settle(project):
    """settle(now) labels what the queued jobs name, then what silence settles."""

    def do(now=NOW):
        with tenant(project.id):
            for payload in Job.objects.filter(kind="feedback.label").values_list("payload", flat=True):
                label.label_turns(project.id, payload["turns"], now=now)
            label.settle_due(project.id, now=now)

    return do


def one(project) -> tuple:
    with tenant(project.id):
        found = Turn.objects.select_related("label").get()
        return found.outcome, found.label and found.label.value, found.settled_at


def test_a_decisive_signal_settles_a_turn_at_once(record, settle, project):
    record(turn(), signal("g1"))
    settle()
    assert one(project) == ("accept", 1.0, NOW)


def test_silence_settles_when_the_window_closes(record, settle, project):
    record(turn())
    settle(NOW + timedelta(seconds=119))
    assert one(project) == (None, None, None)
    settle(LATER)
    assert one(project) == ("silence", 0.0, LATER)


def test_the_window_is_the_projects(settle, record, project):
    project.settings = {"decision_window_s": 5}
    with tenant(project.id):
        project.save()
    record(turn())
    settle(NOW + timedelta(seconds=5))
    assert one(project)[0] == "silence"


def test_a_later_undo_is_a_second_label_and_the_first_stays(record, settle, project):
    record(turn(), signal("g1"))
    settle()
    record(signal("g2", "undo", seconds=60))
    settle(LATER)
    assert one(project) == ("reject", -1.0, NOW)
    with tenant(project.id):
        assert list(Label.objects.order_by("id").values_list("outcome", flat=True)) == ["accept", "reject"]


def test_labelling_again_changes_nothing(record, settle, project):
    record(turn(), signal("g1"))
    settle()
    settle(LATER)
    with tenant(project.id):
        assert Label.objects.count() == 1


def test_a_turn_seen_late_is_open_from_when_it_was_shown(record, settle, project):
    record(turn())
    record(signal("g1", "shown"), at=NOW + timedelta(seconds=100))
    settle(NOW + timedelta(seconds=110))
    settle(LATER)
    assert one(project)[0] is None
    settle(NOW + timedelta(seconds=220))
    assert one(project)[0] == "silence"


def test_measurements_are_never_settled_by_silence(record, settle, project):
    record(turn(source="eval"))
    settle(NOW + timedelta(days=30))
    assert one(project) == (None, None, None)


def test_when_what_settled_a_turn_is_superseded_it_is_open_again(record, settle, project):
    record(turn(), signal("g1"))
    settle()
    record(signal("g2", "comment", text="slipped", supersedes="g1", seconds=4))
    settle()
    assert one(project) == (None, None, None)
    settle(LATER)
    assert one(project)[0] == "silence"


def test_the_room_above_hears_of_new_labels_only(record, settle, project):
    heard = []

    def listen(sender, project_id, turn_ids, **_):
        heard.append((project_id, turn_ids))

    turns_settled.connect(listen)
    try:
        record(turn(), signal("g1"))
        settle()
        settle(LATER)
    finally:
        turns_settled.disconnect(listen)
    with tenant(project.id):
        assert heard == [(project.id, [Turn.objects.get().pk])]


def test_a_signal_and_its_turn_stored_at_the_same_moment_are_joined_by_the_job(record, project):
    # As if neither transaction had seen the other's rows.
    record(turn())
    with tenant(project.id):
        Turn.objects.update(turn_id="hidden")
        record(signal("g1"))
        Turn.objects.update(turn_id="t1")
        assert UserSignal.objects.get().is_orphan
        label.label_turns(project.id, ["t1"], now=NOW)
        assert UserSignal.objects.get().turn == Turn.objects.get()


def test_an_orphan_expires_visibly_after_the_horizon(record, project):
    record(signal("g1"))
    with tenant(project.id):
        assert label.expire_orphans(project.id, now=NOW + timedelta(days=6)) == 0
        assert label.expire_orphans(project.id, now=NOW + timedelta(days=8)) == 1
        assert label.expire_orphans(project.id, now=NOW + timedelta(days=8)) == 0
        assert LedgerItem.objects.get().outcome == "expired"
        assert dict(OutcomeCount.objects.values_list("outcome", "count")) == {"accepted": 0, "expired": 1}
    record(turn())
    with tenant(project.id):
        assert UserSignal.objects.get().turn is None


def test_an_old_orphan_whose_turn_is_here_is_labelled_instead_of_expired(record, project):
    record(turn())
    with tenant(project.id):
        record(signal("g1"))
        UserSignal.objects.update(turn=None)
        Job.objects.all().delete()
        assert label.expire_orphans(project.id, now=NOW + timedelta(days=8)) == 0
        assert Job.objects.get().payload == {"turns": ["t1"]}


def test_jobs_do_the_same(record, project):
    record(turn(), signal("g1"), turn("t2"), at=datetime.now(UTC) - timedelta(seconds=300))
    label.ask_for_settling()
    label.ask_for_settling()
    assert sorted(Job.objects.values_list("kind", flat=True)) == ["feedback.label", "feedback.settle"]
    while job := claim_next(["default"], "tester"):
        run(job)
    with tenant(project.id):
        assert dict(Turn.objects.values_list("turn_id", "outcome")) == {"t1": "accept", "t2": "silence"}
    assert set(Job.objects.values_list("state", flat=True)) == {"done"}


ITEMS = [
    turn("t1", index=0), turn("t2", index=1, seconds=10), turn("t3", index=2, seconds=20), turn("t4", "s2", seconds=5),
    turn("t5", "s2", 6, source="eval"),
    signal("g01", "shown", "t1", 0.1), signal("g02", "accept", "t1", 2), signal("g03", "undo", "t1", 30),
    signal("g04", "thumbs", "t2", 12, value=1), signal("g05", "thumbs", "t2", 13, value=1),
    signal("g06", "thumbs", "t2", 14, value=-1), signal("g07", "accept", "t3", 22),
    signal("g08", "edit", "t3", 25, text="x"), signal("g09", "persist", "t3", 90, value=0.5),
    signal("g10", "accept", "never comes", 1), signal("g11", "reject", "t3", 21, supersedes="g07"),
]  # fmt: skip


def rows(project) -> dict[str, list]:
    """Everything stored, but for keys and the moments of arrival."""
    with tenant(project.id):
        return {
            "turns": list(
                Turn.objects.order_by("turn_id").values_list(
                    "turn_id",
                    "session__session_id",
                    "at",
                    "outcome",
                    "label__value",
                    "label__reason",
                    "settled_at",
                    "is_shown",
                    "source",
                    "user",
                )
            ),
            "sessions": list(
                AgentSession.objects.order_by("session_id").values_list(
                    "session_id", "first_at", "last_at", "num_turns"
                )
            ),
            "signals": list(
                UserSignal.objects.order_by("signal_id").values_list(
                    "signal_id", "turn__turn_id", "kind", "value", "at"
                )
            ),
            "payloads": list(
                TurnPayload.objects.filter(project_id=project.id)
                .order_by("turn_id")
                .values_list("turn_id", "completion")
            ),
            "labels": list(
                Label.objects.order_by("turn__turn_id").values_list("turn__turn_id", "outcome", "value", "reason")
            ),
            "ledger": list(LedgerItem.objects.order_by("item_id").values_list("item_id", "kind", "outcome")),
        }


def test_the_same_items_in_twenty_shuffled_orders_give_identical_rows(project):
    expected = None
    for seed in range(20):
        shuffler = random.Random(seed)
        items = ITEMS + shuffler.sample(ITEMS, 4)  # some are sent twice
        shuffler.shuffle(items)
        while items:
            size = shuffler.randint(1, 6)
            record_items(project.id, items[:size], received_at=NOW)
            items = items[size:]
        with tenant(project.id):
            for payload in Job.objects.filter(kind="feedback.label").order_by("?").values_list("payload", flat=True):
                label.label_turns(project.id, payload["turns"], now=NOW)
            label.settle_due(project.id, now=LATER)
            found = rows(project)
            expected = expected or found
            assert found == expected, f"order {seed} differs"
            for model in (Label, UserSignal, Turn, AgentSession, LedgerItem):
                model.objects.all().delete()
            TurnPayload.objects.filter(project_id=project.id).delete()
            Job.objects.all().delete()
    outcomes = {row[0]: row[3:5] for row in expected["turns"]}
    assert outcomes == {
        "t1": ("reject", -1.0), "t2": ("reject", -1.0), "t3": ("accept", 0.25), "t4": ("silence", 0.0),
        "t5": (None, None),
    }  # fmt: skip


def test_labels_made_between_arrivals_end_the_same(project):
    results = set()
    for seed in range(20):
        items = list(ITEMS)
        random.Random(seed).shuffle(items)
        with tenant(project.id):
            for item in items:
                record_items(project.id, [item], received_at=NOW)
                label.label_turns(project.id, ["t1", "t2", "t3", "t4", "t5"], now=NOW)
            label.settle_due(project.id, now=LATER)
            results.add(str(rows(project)["turns"]).replace(str(LATER), str(NOW)))
            for model in (Label, UserSignal, Turn, AgentSession, LedgerItem):
                model.objects.all().delete()
            TurnPayload.objects.filter(project_id=project.id).delete()
    assert len(results) == 1


CHILD = """
import sys
sys.path[:0] = [".", "platform"]
import django
django.setup()
from jobs.services import claim_next, run
run(claim_next(["default"], "child"))
"""


def test_a_worker_killed_while_labelling_leaves_no_label_and_the_next_one_makes_one(transactional_db, tmp_path):
    project = create_project("shared", "Shared")
    record_items(project.id, [turn(), signal("g1")], received_at=NOW)
    log = tmp_path / "crashes"
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "strop.settings", "CRASH_LOG": str(log)}
    command = [sys.executable, "-c", CHILD]
    died = subprocess.run(command, cwd=CHECKOUT, env=environment | {"CRASH_AT": "task.feedback.label.mid"}, timeout=60)
    assert (died.returncode, log.read_text().split()) == (137, ["task.feedback.label.mid"])
    with tenant(project.id):
        assert Label.objects.count() == 0
    Job.objects.update(lease_until=NOW)  # its lease has run out
    subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, timeout=60)
    with tenant(project.id):
        assert list(Label.objects.values_list("outcome", flat=True)) == ["accept"]
        assert (Job.objects.get().state, Job.objects.get().attempts) == ("done", 2)
