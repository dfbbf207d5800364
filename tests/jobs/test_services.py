"""Durable work against a real PostgreSQL: one winner per job, effects fenced, poison bounded, lost bells harmless."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from jobs import handlers, services
from jobs.models import Job, JobState, ScheduleSlot

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def ledger(monkeypatch):
    """Handlers of kinds made for these tests, and what they did."""
    done: list[int] = []
    monkeypatch.setattr(handlers, "_registered", dict(handlers._registered))
    handlers.register("test.note", lambda job: done.append(job.payload["n"]), queue="test")
    handlers.register("test.fail", lambda job: 1 / 0, queue="test")
    return done


def make(kind: str = "test.note", **values) -> int:
    return services.enqueue(kind, project_id=None, payload={"n": 1}, **values)


def expire(job_id: int) -> None:
    Job.objects.filter(id=job_id).update(lease_until=timezone.now() - timedelta(seconds=1))


def test_a_claimed_job_is_done_once_and_not_claimable_again(ledger):
    job_id = make()
    services.run(services.claim(job_id, "w1"))
    assert services.claim(job_id, "w2") is None
    assert ledger == [1]
    assert Job.objects.get(id=job_id).state == JobState.DONE


def test_a_job_due_later_waits():
    job_id = make(run_at=timezone.now() + timedelta(minutes=1))
    assert services.claim(job_id, "w") is None


def test_a_key_stands_for_a_job_still_queued_and_brings_it_forward():
    later = make(key="k", run_at=timezone.now() + timedelta(hours=1))
    assert make(key="k") is None
    assert services.claim(later, "w") is not None
    assert make(key="k") is not None  # the first is running: what comes now needs a run of its own


def test_attempts_are_counted_before_work_so_that_a_killed_worker_counts():
    job_id = make()
    services.claim(job_id, "dies")
    assert Job.objects.get(id=job_id).attempts == 1


def test_a_lease_that_ran_out_lets_another_worker_take_over_and_refuses_the_first_ones_effect():
    job_id = make()
    slow = services.claim(job_id, "slow")
    expire(job_id)
    quick = services.claim(job_id, "quick")
    assert quick.fence > slow.fence
    with pytest.raises(services.StaleFence), slow.effect():
        Job.objects.filter(id=job_id).update(last_error="written by the slow one")
    assert Job.objects.get(id=job_id).last_error == ""
    with quick.effect():
        pass
    assert Job.objects.get(id=job_id).state == JobState.DONE


@pytest.mark.django_db(transaction=True)
def test_a_handler_that_works_longer_than_its_lease_keeps_it():
    seen = []

    def work(job):
        time.sleep(3)
        seen.append(services.claim(job.id, "thief"))

    handlers.register("test.long", work, queue="test", lease_s=2)
    job_id = make("test.long")
    services.run(services.claim(job_id, "w"))
    assert seen == [None]
    assert Job.objects.get(id=job_id).state == JobState.DONE


def test_the_fifth_failure_quarantines_with_the_error_and_replay_gives_new_attempts():
    job_id = make("test.fail")
    for attempt in range(1, 6):
        Job.objects.filter(id=job_id).update(run_at=timezone.now())
        services.run(services.claim(job_id, "w"))
        assert Job.objects.get(id=job_id).attempts == attempt
    row = Job.objects.get(id=job_id)
    assert row.state == JobState.QUARANTINED
    assert "ZeroDivisionError" in row.last_error
    assert services.replay(job_id)
    assert services.claim(job_id, "w").attempts == 1


def test_an_error_that_quotes_a_nul_is_kept_readable():
    def fail(job):
        raise ValueError("the judge said \0")

    handlers.register("test.nul", fail, queue="test")
    job_id = make("test.nul")
    services.run(services.claim(job_id, "w"))
    assert "the judge said \ufffd" in Job.objects.get(id=job_id).last_error


def test_a_job_that_kills_its_worker_each_time_is_quarantined_at_the_sixth_claim():
    job_id = make()
    for _ in range(5):
        assert services.claim(job_id, "dies") is not None
        expire(job_id)
    assert services.claim(job_id, "w") is None
    assert Job.objects.get(id=job_id).state == JobState.QUARANTINED


def test_waiting_for_something_else_costs_no_attempt(ledger):
    def wait(job):
        raise services.NotYet(5, "the engine does not hold it yet")

    handlers.register("test.wait", wait, queue="test")
    job_id = make("test.wait")
    services.run(services.claim(job_id, "w"))
    row = Job.objects.get(id=job_id)
    assert (row.state, row.attempts) == (JobState.QUEUED, 0)
    assert row.run_at > timezone.now() + timedelta(seconds=3)


def test_a_failed_job_whose_key_was_queued_again_keeps_both():
    first = make("test.fail", key="k")
    claimed = services.claim(first, "w")
    second = make("test.fail", key="k")
    services.run(claimed)
    assert Job.objects.get(id=first).state == JobState.QUEUED
    assert Job.objects.get(id=second).state == JobState.QUEUED


def test_a_schedule_runs_once_per_slot_however_many_beats_there_are(monkeypatch):
    runs = []
    monkeypatch.setattr(handlers, "_schedules", {"test": (3600.0, lambda: runs.append(1))})
    services.fire_schedules()
    services.fire_schedules()
    assert runs == [1]
    assert ScheduleSlot.objects.filter(schedule="test").count() == 1


def test_a_broker_that_is_away_does_not_fail_the_caller(django_capture_on_commit_callbacks):
    handlers.register("test.rung", lambda job: None, queue="default")
    with django_capture_on_commit_callbacks(execute=True):
        job_id = services.enqueue("test.rung", project_id=None)
    assert Job.objects.get(id=job_id).state == JobState.QUEUED


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_asking_at_once_exactly_one_gets_each_job():
    ids = {make() for _ in range(20)}
    won: list[int] = []

    def work() -> None:
        while (job := services.claim_next(["test"], "w")) is not None:
            won.append(job.id)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == sorted(ids)
