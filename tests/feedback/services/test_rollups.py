"""Hourly counts against a recount of the rows: after any sequence of writes, from many connections, after a kill."""

import importlib
import os
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feedback.models import DirtyHour, LatencyRollup, LedgerItem, SignalRollup, Turn, TurnRollup, UserRollup, UserSignal
from feedback.rollups import bucket_of, hour_of
from feedback.services import label, rollups
from feedback.services.record import record_items
from feedback.wire import SignalItem, TurnItem, Usage
from jobs.models import Job
from jobs.services import claim_next, run
from registry.services import create_project
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db

CHECKOUT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 11, 30, 6, 30, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
ORIGIN = ("policy", "version", "model", "source")


def turn(id: str = "t1", hours: float = 0, **fields) -> TurnItem:
    return TurnItem(id=id, session="s1", at=NOW + timedelta(hours=hours), prompt="p", completion="c", **fields)


def signal(id: str, kind: str = "accept", turn: str = "t1", hours: float = 0, **fields) -> SignalItem:
    return SignalItem(id=id, kind=kind, turn=turn, at=NOW + timedelta(hours=hours), **fields)


def counted_by_hand() -> dict[str, Counter]:
    """The same numbers from the rows one by one, in Python."""
    found: dict[str, Counter] = {"turns": Counter(), "users": Counter(), "latencies": Counter(), "signals": Counter()}
    for one in Turn.objects.all():
        key = (hour_of(one.at), *(getattr(one, name) for name in ORIGIN))
        is_settled = one.is_shown and one.settled_at is not None
        is_told = one.input_tokens is not None and one.output_tokens is not None
        for name, number in {
            "turns": 1, "errors": one.error is not None, "shown": one.is_shown, "settled": is_settled,
            "accepted": is_settled and one.outcome == "accept", "rejected": is_settled and one.outcome == "reject",
            "silent": is_settled and one.outcome == "silence", "unknown": is_settled and one.outcome == "unknown",
            "with_usage": is_told, "input_tokens": is_told and one.input_tokens,
            "cache_read_tokens": is_told and (one.cache_read_tokens or 0),
            "cache_write_tokens": is_told and (one.cache_write_tokens or 0),
            "output_tokens": is_told and one.output_tokens,
            "reasoning_tokens": is_told and (one.reasoning_tokens or 0), "with_latency": one.latency_ms is not None,
            "latency_us": round((one.latency_ms or 0) * 1000),
            "without_logprobs": one.version is not None and not one.has_logprobs,
            "from_future": one.at > one.received_at + timedelta(seconds=5),
            "with_conduct": one.asks_back is not None, "bad_calls": one.has_bad_call or False,
            "asked_back": one.asks_back or False, "without_edit": one.is_without_edit or False,
        }.items():  # fmt: skip
            found["turns"][*key, name] += int(number)
        for name, number in {
            "turns": 1, "settled": is_settled, "accepted": is_settled and one.outcome == "accept"
        }.items():  # fmt: skip
            found["users"][*key, one.user, name] += int(number)
        for measure, ms in (("latency", one.latency_ms), ("ttft", one.ttft_ms)):
            if ms is not None:
                found["latencies"][*key, measure, bucket_of(ms)] += 1
    for one in UserSignal.objects.select_related("turn"):
        origin = tuple(getattr(one.turn, name, None) for name in ORIGIN)
        found["signals"][hour_of(one.at), *origin, one.kind] += 1
    return found


def stored() -> dict[str, Counter]:
    found: dict[str, Counter] = {"turns": Counter(), "users": Counter(), "latencies": Counter(), "signals": Counter()}
    numbers = {
        "turns": (
            "turns", "errors", "shown", "settled", "accepted", "rejected", "silent", "unknown", "with_usage",
            "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
            "with_latency", "latency_us", "without_logprobs", "from_future",
            "with_conduct", "bad_calls", "asked_back", "without_edit",
        ),
        "users": ("turns", "settled", "accepted"),
    }  # fmt: skip
    for row in TurnRollup.objects.all():
        for name in numbers["turns"]:
            found["turns"][row.hour, *(getattr(row, part) for part in ORIGIN), name] += getattr(row, name)
    for row in UserRollup.objects.all():
        for name in numbers["users"]:
            found["users"][row.hour, *(getattr(row, part) for part in ORIGIN), row.user, name] += getattr(row, name)
    for row in LatencyRollup.objects.all():
        found["latencies"][row.hour, *(getattr(row, part) for part in ORIGIN), row.measure, row.bucket] += row.turns
    for row in SignalRollup.objects.all():
        found["signals"][row.hour, *(getattr(row, part) for part in ORIGIN), row.kind] += row.signals
    return found


def assert_exact(project) -> None:
    with tenant(project.id):
        by_hand, kept = counted_by_hand(), stored()
        for name, expected in by_hand.items():
            assert +kept[name] == +expected, name
    assert rollups.differences(project.id) == []


# --- Any sequence of what may happen ---

HOURS = st.sampled_from([-30.0, -2.2, -0.9, -0.1, 0.0, 0.4, 1.7])
TURNS = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(
        st.just("turn"), TURNS, HOURS, st.sampled_from(["editor@1", "editor@2", None]),
        st.sampled_from(["u1", "u2", None]), st.sampled_from(["production", "import", "eval"]),
        st.sampled_from([None, 0.3, 180.0, 1024.0]),
    ),
    st.tuples(st.just("signal"), TURNS, HOURS, st.sampled_from(["accept", "undo", "ignore", "shown", "comment"])),
    st.tuples(st.just("session signal"), HOURS),
    st.tuples(st.just("label"), TURNS),
    st.tuples(st.just("silence")),
    st.tuples(st.just("delete turn"), TURNS),
    st.tuples(st.just("delete signal"), st.integers(0, 10)),
    st.tuples(st.just("redact"), TURNS),
    st.tuples(st.just("count"), st.integers(1, 3)),
)  # fmt: skip


class Product:
    """What users, the labeller and a deletion do to one project, in the order hypothesis thought of."""

    def __init__(self) -> None:
        self.project = create_project(f"p{next(_names)}", "P")
        self.names = count()

    def do(self, step: tuple) -> None:
        kind, *values = step
        getattr(self, kind.replace(" ", "_"))(*values)

    def send(self, item) -> None:
        record_items(self.project.id, [item], received_at=NOW)

    def turn(self, place, hours, checkpoint, user, source, latency_ms) -> None:
        usage = Usage(input=20, output=4) if latency_ms else None
        self.send(
            turn(
                f"t{place}", hours, checkpoint=checkpoint, user=user, source=source, latency_ms=latency_ms, usage=usage,
                ttft_ms=latency_ms, error="cut" if latency_ms == 1024.0 else None,
            )
        )  # fmt: skip

    def signal(self, place, hours, kind) -> None:
        self.send(signal(f"g{next(self.names)}", kind, f"t{place}", hours))

    def session_signal(self, hours) -> None:
        self.send(SignalItem(id=f"g{next(self.names)}", kind="thumbs", session="s1", value=1, at=NOW))

    def label(self, place) -> None:
        with tenant(self.project.id):
            label.label_turns(self.project.id, [f"t{place}"], now=NOW)

    def silence(self) -> None:
        with tenant(self.project.id):
            label.settle_due(self.project.id, now=LATER)

    def delete_turn(self, place) -> None:
        with tenant(self.project.id):
            Turn.objects.filter(turn_id=f"t{place}").delete()
            LedgerItem.objects.filter(item_id=f"t{place}").delete()  # so that it may come again

    def delete_signal(self, place) -> None:
        with tenant(self.project.id):
            UserSignal.objects.filter(signal_id=f"g{place}").delete()

    def redact(self, place) -> None:
        with tenant(self.project.id):
            Turn.objects.filter(turn_id=f"t{place}").update(user=None)

    def count(self, at_most) -> None:
        with tenant(self.project.id):
            rollups.count_dirty(self.project.id, at_most=at_most)


_names = count()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=30))
def test_whatever_happens_in_whatever_order_the_counts_equal_a_recount(db, steps):
    product = Product()
    for step in steps:
        product.do(step)
    with tenant(product.project.id):
        rollups.count_all_dirty(product.project.id)
    assert_exact(product.project)


# --- What marks an hour ---


@pytest.fixture
def clean(project):
    """A project with a counted, settled turn at 06:30 and its accept."""
    record_items(project.id, [turn(user="u"), signal("g1")], received_at=NOW)
    with tenant(project.id):
        label.label_turns(project.id, ["t1"], now=NOW)
        rollups.count_all_dirty(project.id)
    return project


def dirty(project) -> set[int]:
    with tenant(project.id):
        return set(DirtyHour.objects.values_list("hour__hour", flat=True))


def test_a_counted_hour_is_clean(clean):
    assert dirty(clean) == set()


@pytest.mark.parametrize(
    ("write", "hours"),
    [
        (lambda id: record_items(id, [turn("t2", 1)], received_at=NOW), {7}),
        (lambda id: record_items(id, [signal("g2", hours=2)], received_at=NOW), {8}),
        (lambda id: record_items(id, [turn()], received_at=NOW), set()),  # a duplicate
        (lambda id: Turn.objects.update(is_excluded=True), set()),
        (lambda id: Turn.objects.update(outcome="reject"), {6}),
        (lambda id: Turn.objects.update(at=NOW + timedelta(hours=3)), {6, 9}),
        (lambda id: Turn.objects.update(policy="editor", version=2), {6}),
        (lambda id: UserSignal.objects.all().delete(), {6}),
        (lambda id: Turn.objects.all().delete(), {6}),
    ],
    ids=["turn", "late signal", "duplicate", "what is not counted", "label", "time", "origin", "signals", "turns"],
)
def test_a_write_marks_the_hours_it_changes_and_no_other(clean, write, hours):
    with tenant(clean.id):
        write(clean.id)
    assert dirty(clean) == hours


def test_a_late_undo_is_counted_in_the_hour_of_the_turn(clean):
    record_items(clean.id, [signal("g2", "undo", hours=3)], received_at=LATER)
    with tenant(clean.id):
        label.label_turns(clean.id, ["t1"], now=LATER)
        rollups.count_all_dirty(clean.id)
        assert list(TurnRollup.objects.values_list("hour__hour", "accepted", "rejected")) == [(6, 0, 1)]


def test_a_signal_that_waited_is_counted_under_its_turns_checkpoint_once_it_came(project):
    record_items(project.id, [signal("g1", turn="late")], received_at=NOW)
    with tenant(project.id):
        rollups.count_all_dirty(project.id)
    record_items(project.id, [turn("late", 1, checkpoint="editor@3")], received_at=NOW)
    with tenant(project.id):
        rollups.count_all_dirty(project.id)
        assert list(SignalRollup.objects.values_list("hour__hour", "version", "signals")) == [(6, 3, 1)]


def test_counts_of_another_project_are_neither_seen_nor_touched(clean, other_project):
    record_items(other_project.id, [turn("t1"), turn("t2")], received_at=NOW)
    with tenant(other_project.id):
        rollups.count_all_dirty(other_project.id)
        assert TurnRollup.objects.get().turns == 2
    with tenant(clean.id):
        assert TurnRollup.objects.get().turns == 1


# --- Rebuilding ---


def test_a_rebuild_repairs_counts_that_were_tampered_with_and_removes_those_of_no_rows(clean):
    with tenant(clean.id):
        TurnRollup.objects.update(accepted=0, rejected=1)
        SignalRollup.objects.create(hour=NOW.replace(hour=2, minute=0), kind="accept", signals=7)
    assert len(rollups.differences(clean.id)) == 3
    assert rollups.rebuild(clean.id) == 5
    assert_exact(clean)


def test_a_rebuild_of_some_hours_leaves_the_others(clean):
    with tenant(clean.id):
        TurnRollup.objects.update(accepted=0, rejected=1)
    assert rollups.rebuild(clean.id, since=NOW + timedelta(hours=1), until=NOW + timedelta(hours=4)) == 4
    assert len(rollups.differences(clean.id)) == 2


def test_a_project_without_rows_has_nothing_to_rebuild(project):
    assert rollups.rebuild(project.id) == 0


# --- Jobs, connections, kills ---


def test_the_schedule_asks_once_and_the_job_counts(project):
    record_items(project.id, [turn()], received_at=NOW)
    Job.objects.all().delete()
    rollups.ask_for_rollups()
    rollups.ask_for_rollups()
    assert Job.objects.get().kind == rollups.ROLLUP_JOB
    run(claim_next(["default"], "tester"))
    rollups.ask_for_rollups()
    assert Job.objects.get().state == "done"
    assert_exact(project)


def test_more_hours_than_a_job_takes_are_left_for_the_next_one(project, monkeypatch):
    monkeypatch.setattr(rollups, "HOURS_AT_ONCE", 2)
    record_items(project.id, [turn(f"t{place}", -place) for place in range(5)], received_at=NOW)
    Job.objects.all().delete()
    rollups.ask_for_rollups()
    while job := claim_next(["default"], "tester"):
        run(job)
    assert dirty(project) == set()
    assert_exact(project)


def test_hours_in_which_tokens_were_told_in_part_are_counted_once_more_after_an_upgrade(project):
    told = (Usage(input=5), Usage(output=7), Usage(input=5, output=7), None)
    record_items(
        project.id, [turn(f"t{place}", -place, usage=usage) for place, usage in enumerate(told)], received_at=NOW
    )
    with tenant(project.id):
        rollups.count_all_dirty(project.id)
    with connection.cursor() as cursor:
        cursor.execute(importlib.import_module("feedback.migrations.0013_whole_usage").MARK)
    assert dirty(project) == {6, 5}


def test_writers_and_counters_at_once_lose_nothing(transactional_db):
    project = create_project("shared", "Shared")
    start, writing = threading.Barrier(4), threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        start.wait()
        for place in range(25):
            name = f"{number}-{place}"
            items = [
                turn(name, -(place % 3), checkpoint=f"editor@{1 + place % 2}", user=f"u{place % 4}"),
                signal(f"g{name}", turn=name),
            ]
            record_items(project.id, items, received_at=NOW)
            with tenant(project.id):
                label.label_turns(project.id, [name], now=NOW)

    def count_on(number: int) -> None:
        start.wait()
        while not writing.is_set():
            with tenant(project.id):
                rollups.count_dirty(project.id, at_most=2)

    def guarded(work, number) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)
            start.abort()
        finally:
            connection.close()

    writers = [threading.Thread(target=guarded, args=(write, number)) for number in range(2)]
    counters = [threading.Thread(target=guarded, args=(count_on, number)) for number in range(2)]
    for thread in writers + counters:
        thread.start()
    for thread in writers:
        thread.join()
    writing.set()
    for thread in counters:
        thread.join()
    assert failures == []
    with tenant(project.id):
        rollups.count_all_dirty(project.id)
    assert_exact(project)


CHILD = """
import sys
sys.path[:0] = [".", "platform"]
import django
django.setup()
from jobs.services import claim_next, run
run(claim_next(["default"], "child"))
"""


def test_a_worker_killed_while_counting_leaves_the_marks_and_the_next_one_counts(transactional_db, tmp_path):
    project = create_project("shared", "Shared")
    record_items(project.id, [turn()], received_at=NOW)
    Job.objects.all().delete()
    rollups.ask_for_rollups()
    log = tmp_path / "crashes"
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "strop.settings", "CRASH_LOG": str(log)}
    command = [sys.executable, "-c", CHILD]
    died = subprocess.run(command, cwd=CHECKOUT, env=environment | {"CRASH_AT": "task.feedback.rollup.mid"}, timeout=60)
    assert (died.returncode, log.read_text().split()) == (137, ["task.feedback.rollup.mid"])
    with tenant(project.id):
        assert (DirtyHour.objects.count(), TurnRollup.objects.count()) == (1, 0)
    Job.objects.update(lease_until=NOW)  # its lease has run out
    subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, timeout=60)
    assert_exact(project)
