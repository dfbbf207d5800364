from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from jobs.models import Job
from strop.local.liveness import answers, jobs_move, socket_answers


def job(*, age_s: float, state: str = "queued", queue: str = "default", **fields):
    due = timezone.now() - timedelta(seconds=age_s)
    return Job.objects.create(kind="test", queue=queue, state=state, run_at=due, **fields)


def moves() -> bool:
    connection.ensure_connection()
    return jobs_move(connection.connection)


@pytest.mark.usefixtures("db")
class TestWorkers:
    def test_move_when_there_is_nothing_to_do(self):
        assert moves()

    def test_move_while_what_is_due_is_young(self):
        job(age_s=50)
        assert moves()

    def test_are_stuck_when_a_job_is_long_due_and_nothing_was_done(self):
        job(age_s=70)
        job(age_s=600, state="done", finished_at=timezone.now() - timedelta(seconds=300))
        assert not moves()

    def test_move_when_one_is_behind_and_does_others(self):
        job(age_s=600)
        job(age_s=10, state="done", finished_at=timezone.now())
        assert moves()

    def test_move_while_a_long_job_holds_its_lease(self):
        job(age_s=600)
        job(age_s=600, state="running", lease_until=timezone.now() + timedelta(seconds=5))
        assert moves()

    def test_are_stuck_when_the_one_that_runs_lost_its_lease(self):
        job(age_s=600)
        job(age_s=600, state="running", lease_until=timezone.now() - timedelta(seconds=5))
        assert not moves()

    def test_do_not_answer_for_other_queues(self):
        job(age_s=600, queue="updater")
        assert moves()


def test_nobody_there_is_no_answer(tmp_path):
    assert not answers("http://127.0.0.1:1/healthz", timeout_s=1)
    assert not socket_answers(tmp_path / "engine.sock", "/info", timeout_s=1)
