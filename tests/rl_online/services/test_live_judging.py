"""Judges on live traffic, by the jobs that workers run, against judges behind HTTP."""

from datetime import timedelta

import pytest
from django.utils import timezone

from evals.models import JudgeCall, JudgeVersion, LiveRating, Score
from evals.services import completers
from evals.services.judges import change_duty, create_judge, create_panel
from evals.services.retries import request_retry
from feedback.models import AgentSession, Turn
from feedback.services.label import label_turns
from feedback.services.record import record_items
from feedback.wire import SignalItem
from jobs.models import Job
from jobs.services import claim, run
from registry.tenancy import tenant
from rl_online.collecting import scores_of
from rl_online.services.live_judging import OPEN_JOB, RATE_JOB, SESSION_JOB
from tests.evals.services.judge_server import JudgeServer

pytestmark = pytest.mark.django_db
OURS = (OPEN_JOB, SESSION_JOB, RATE_JOB)


def score(value) -> tuple[int, str]:
    return 200, f'{{"rationale": "because", "score": {value}}}'


@pytest.fixture
def serve(settings, monkeypatch):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    monkeypatch.setattr(completers, "FIRST_WAIT_S", 0.01)
    running = []

    def start(behave=lambda *_: score(4)) -> JudgeServer:
        running.append(JudgeServer(behave))
        return running[-1]

    yield start
    for server in running:
        server.close()


@pytest.fixture
def at_work(project, serve):
    """at_work("judge-1", server, live="turn") -> a judge with that duty."""

    def make(model="judge-1", server=None, *, live="turn", **duty) -> JudgeVersion:
        with tenant(project.id):
            judge = create_judge(name=model, model=model, endpoint=(server or serve()).url, actor="ada")
            change_duty(judge, actor="ada", live=live, **duty)
            return judge

    return make


def work(*, until=None) -> int:
    """Run our jobs that are due, as a worker does, until none is; returns how many."""
    done = 0
    while job := Job.objects.filter(kind__in=OURS, state="queued", run_at__lte=until or timezone.now()).first():
        run(claim(job.id, "worker-1"))
        done += 1
        assert done < 200
    return done


def ratings(project, **which):
    with tenant(project.id):
        return list(LiveRating.objects.filter(**which).order_by("created_at", "id"))


def idle(project, session: str, seconds: float) -> None:
    """As if the session's turns had come that much earlier, and its jobs were due now."""
    with tenant(project.id):
        then = timezone.now() - timedelta(seconds=seconds)
        Turn.objects.filter(session__session_id=session).update(received_at=then)
    Job.objects.filter(kind=SESSION_JOB, state="queued").update(run_at=timezone.now())


# --- Turns ---


def test_a_settled_turn_is_judged_once_and_its_mark_is_a_score(project, policy, judged, at_work, serve):
    server = serve()
    at_work("judge-1", server)
    turn = judged("accept")
    work()
    (rating,) = ratings(project)
    assert (rating.state, rating.value, rating.mark, rating.rated) == ("scored", 0.75, 4, "editor@1")
    with tenant(project.id):
        assert scores_of([turn.turn_id])[turn.turn_id]["judge:judge-1"] == 0.75
        assert JudgeCall.objects.get().rating_id == rating.id
    assert server.asked == {"judge-1": 1}


def test_a_turn_that_is_labelled_again_is_not_judged_again(project, policy, judged, say_signal, at_work, serve):
    server = serve()
    at_work("judge-1", server)
    turn = judged("accept")
    work()
    say_signal(turn.turn_id, "undo")
    work()
    assert len(ratings(project)) == 1 and server.asked == {"judge-1": 1}


def test_without_a_judge_at_work_no_job_is_made(project, policy, judged):
    judged("accept")
    assert not Job.objects.filter(kind=OPEN_JOB).exists()


def test_f31_a_turn_that_ended_in_an_error_is_skipped_with_the_reason(project, policy, judged, at_work, serve):
    server = serve()
    at_work("judge-1", server)
    judged("reject", error="upstream timed out", finish_reason="error")
    work()
    (rating,) = ratings(project)
    assert (rating.state, rating.reason) == ("skipped", "the turn ended in an error: upstream timed out")
    assert rating.value is None and server.asked == {}


def test_a_policy_may_not_judge_itself(project, policy, judged, settings):
    with tenant(project.id):
        judge = create_judge(name="self", model="editor@1", actor="ada")
        change_duty(judge, actor="ada", live="turn")
    judged("accept")
    work()
    (rating,) = ratings(project)
    assert (rating.state, rating.reason) == ("skipped", "a policy may not judge itself")


def test_f27_what_cannot_be_read_is_invalid_and_never_a_score_of_0(project, policy, judged, at_work, serve):
    at_work("judge-1", serve(lambda *_: (200, "I liked it.")))
    turn = judged("accept")
    work()
    (rating,) = ratings(project)
    assert (rating.state, rating.value) == ("invalid", None) and rating.reason
    with tenant(project.id):
        assert scores_of([turn.turn_id]).get(turn.turn_id, {}) == {}
        assert Score.objects.get(turn_ref=turn.turn_id).status == "unscored"


def test_only_a_share_is_judged_and_asking_twice_chooses_alike(project, policy, judged, at_work, serve):
    at_work("judge-1", serve(), share=0.5)
    turns = [judged("accept") for _ in range(24)]
    work()
    first = {one.subject_ref for one in ratings(project)}
    assert 0 < len(first) < 24
    with tenant(project.id):
        label_turns(project.id, [turn.turn_id for turn in turns], now=timezone.now())
    work()
    assert {one.subject_ref for one in ratings(project)} == first


def test_f29_of_seven_judges_two_come_late_and_one_is_blocked_until_asked_again(
    project, policy, judged, at_work, serve
):
    is_down = [True]

    def behave(model, data, n):
        if model == "judge-7" and is_down[0]:
            return 401, ""
        if model in ("judge-2", "judge-3") and n < 2:
            return 429, ""
        return score(5)

    server = serve(behave)
    for number in range(1, 8):
        at_work(f"judge-{number}", server)
    judged("accept")
    work()
    states = {one.judge_id: (one.state, one.reason) for one in ratings(project)}
    with tenant(project.id):
        by_name = {judge.name: states[judge.pk] for judge in JudgeVersion.objects.all()}
    assert [by_name[f"judge-{number}"] for number in range(1, 8)] == [("scored", "")] * 6 + [("error", "status 401")]
    is_down[0] = False
    with tenant(project.id):
        assert request_retry(JudgeVersion.objects.get(name="judge-7"), actor="ada") == 1
    work()
    assert {one.state for one in ratings(project)} == {"scored"} and len(ratings(project)) == 7


def test_a_budget_that_is_spent_blocks_the_rest_with_the_reason(project, policy, judged, at_work, serve):
    server = serve()
    at_work("judge-1", server, daily_calls=2)
    for _ in range(4):
        judged("accept", completion=f"x{_}):", completion_token_ids=[7, 8, 0])
    work()
    found = [(one.state, one.reason) for one in ratings(project)]
    assert sorted(found) == [("error", "the day's budget of 2 calls is spent")] * 2 + [("scored", "")] * 2
    assert server.asked == {"judge-1": 2}


def test_the_same_answer_to_the_same_prompt_is_asked_once_and_costs_once(project, policy, judged, at_work, serve):
    server = serve()
    at_work("judge-1", server)
    judged("accept")
    work()
    judged("reject")  # another turn, word for word the same
    work()
    assert [one.value for one in ratings(project)] == [0.75, 0.75] and server.asked == {"judge-1": 1}
    with tenant(project.id):
        assert sorted(JudgeCall.objects.values_list("is_cached", flat=True)) == [False, True]


def test_an_error_is_never_taken_from_the_cache(project, policy, judged, at_work, serve):
    server = serve(lambda model, data, n: (401, "") if n == 0 else score(4))
    at_work("judge-1", server)
    judged("accept")
    work()
    judged("reject")
    work()
    assert [one.state for one in ratings(project)] == ["error", "scored"] and server.asked == {"judge-1": 2}


def test_a_paused_judges_marks_are_shown_and_not_learnt_from(project, policy, judged, at_work, serve):
    from evals.models import CanaryRun

    judge = at_work("judge-1", serve())
    turn = judged("accept")
    work()
    with tenant(project.id):
        CanaryRun.objects.create(judge=judge, state="done", standing="failed", requested_by="ada")
        assert scores_of([turn.turn_id]).get(turn.turn_id, {}) == {}
        assert Score.objects.filter(turn_ref=turn.turn_id, value=0.75).exists()


# --- Panels ---


def test_a_panel_speaks_when_all_its_judges_have(project, policy, judged, at_work, serve):
    server = serve(lambda model, data, n: score({"judge-1": 5, "judge-2": 4}.get(model, 4)))
    judges = [at_work(f"judge-{number}", server) for number in (1, 2, 3)]
    with tenant(project.id):
        create_panel("three", [judge.pk for judge in judges], actor="ada")
    turn = judged("accept")
    work()
    with tenant(project.id):
        found = Score.objects.get(turn_ref=turn.turn_id, scorer="panel:three")
        assert found.value == pytest.approx((1 + 0.75 + 0.75) / 3)
        assert (found.parts["votes"], found.parts["abstained"]) == (3, 0)


def test_a_judge_without_a_mark_abstains_from_the_panel(project, policy, judged, at_work, serve):
    server = serve(lambda model, data, n: (401, "") if model == "judge-3" else score(5))
    judges = [at_work(f"judge-{number}", server) for number in (1, 2, 3)]
    with tenant(project.id):
        create_panel("three", [judge.pk for judge in judges], actor="ada")
    turn = judged("accept")
    work()
    with tenant(project.id):
        found = Score.objects.get(turn_ref=turn.turn_id, scorer="panel:three")
        assert (found.value, found.parts["abstained"]) == (1.0, 1)


def test_a_judge_that_is_paused_after_it_spoke_loses_its_vote_on_the_panel(project, policy, judged, at_work, serve):
    from evals.models import CanaryRun

    server = serve(lambda model, data, n: score({"judge-1": 5, "judge-2": 4}.get(model, 4)))
    judges = [at_work(f"judge-{number}", server) for number in (1, 2, 3)]
    with tenant(project.id):
        create_panel("three", [judge.pk for judge in judges], actor="ada")
    turn = judged("accept")
    work()

    def learnt() -> float | None:
        return scores_of([turn.turn_id]).get(turn.turn_id, {}).get("panel:three")

    with tenant(project.id):
        assert learnt() == pytest.approx(2.5 / 3)
        failed = [
            CanaryRun.objects.create(judge=judge, state="done", standing="failed", requested_by="ada")
            for judge in judges[:2]
        ]
        assert learnt() is None, "one judge is below the quorum of two"
        failed[1].delete()
        assert learnt() == pytest.approx(0.75), "the mean of the two that may vote"
        failed[0].delete()
        assert learnt() == pytest.approx(2.5 / 3)


# --- Sessions ---


def test_f28_a_session_is_judged_when_it_is_idle_and_not_before(project, policy, judged, at_work, serve):
    server = serve()
    at_work("judge-1", server, live="session", idle_s=600)
    judged("accept", session="edit-1")
    idle(project, "edit-1", 0)
    work()
    assert ratings(project) == [] and server.asked == {}, "it may go on"
    job = Job.objects.get(kind=SESSION_JOB, state="queued")
    assert job.run_at > timezone.now() + timedelta(seconds=50) and "until the session has ended" in job.last_error
    idle(project, "edit-1", 601)
    work()
    assert [one.state for one in ratings(project)] == ["scored"]


def test_f28_an_end_mark_ends_a_session_at_once(project, policy, judged, at_work, serve):
    at_work("judge-1", serve(), live="session", idle_s=600)
    judged("accept", session="edit-1")
    left = SignalItem(id="left", session="edit-1", kind="abandon", at=timezone.now())
    record_items(project.id, [left], received_at=timezone.now())
    work()
    assert [one.state for one in ratings(project)] == ["scored"]


def test_f28_a_turn_20_minutes_later_is_judged_with_the_rest_and_supersedes(project, policy, judged, at_work, serve):
    shown = []
    server = serve(lambda model, data, n: (shown.append(data["answer"]), score(4 + n))[1])
    at_work("judge-1", server, live="session", idle_s=300)
    judged("accept", session="edit-1", completion="first):")
    work()
    idle(project, "edit-1", 1200)
    work()
    judged("reject", session="edit-1", index=1, completion="second):")
    work()
    idle(project, "edit-1", 301)
    work()
    old, new = ratings(project)
    assert (old.value, new.value) == (0.75, 1.0)
    assert old.superseded_at is not None and new.superseded_at is None
    assert "second" not in shown[0] and "first" in shown[1] and "second" in shown[1]


def test_f30_ten_sessions_that_end_in_the_same_second_are_judged_once_each(project, policy, judged, at_work, serve):
    server = serve()
    at_work("judge-1", server, live="session", idle_s=60)
    for number in range(10):
        judged("accept", session=f"edit-{number}", completion=f"x{number}):")
    Job.objects.filter(kind=OPEN_JOB, state="queued").count()
    work()
    for number in range(10):
        idle(project, f"edit-{number}", 61)
    # A worker dies in the middle: it holds a job that looks at a session and one that asks, and never finishes them.
    dead_looks = claim(Job.objects.filter(kind=SESSION_JOB, state="queued").first().id, "dies")
    work()
    Job.objects.filter(id=dead_looks.id).update(lease_until=timezone.now() - timedelta(seconds=1))
    again = claim(dead_looks.id, "worker-2")
    run(again)
    dead_asks = claim(Job.objects.get(kind=RATE_JOB, state="queued").id, "dies")
    Job.objects.filter(id=dead_asks.id).update(lease_until=timezone.now() - timedelta(seconds=1))
    run(claim(dead_asks.id, "worker-2"))
    run(dead_looks), run(dead_asks)  # the dead come back: their fences are stale
    found = ratings(project)
    assert len(found) == 10 and {one.state for one in found} == {"scored"}
    assert len({one.subject_ref for one in found}) == 10 and server.asked == {"judge-1": 10}
    with tenant(project.id):
        assert JudgeCall.objects.count() == 10


def test_f31_a_session_of_errors_only_is_skipped_with_the_reason(project, policy, judged, at_work, serve):
    server = serve()
    at_work("judge-1", server, live="session", idle_s=60)
    judged("reject", session="edit-1", error="out of memory", finish_reason="error")
    work()
    idle(project, "edit-1", 61)
    work()
    (rating,) = ratings(project)
    assert (rating.state, rating.reason) == ("skipped", "every turn ended in an error: out of memory")
    assert server.asked == {}


def test_a_session_with_an_open_turn_waits_for_it_to_settle(project, policy, judged, say_signal, at_work, serve):
    at_work("judge-1", serve(), live="session", idle_s=60)
    judged("accept", session="edit-1")
    open_turn = judged(None, session="edit-1", index=1)
    work()
    idle(project, "edit-1", 61)
    work()
    assert ratings(project) == []
    say_signal(open_turn.turn_id, "accept")
    work()
    idle(project, "edit-1", 61)
    work()
    assert [one.state for one in ratings(project)] == ["scored"]


def test_a_session_of_another_project_is_not_seen(project, other_project, policy, judged, at_work, serve):
    at_work("judge-1", serve())
    judged("accept")
    work()
    with tenant(other_project.id):
        assert LiveRating.objects.count() == 0 and AgentSession.objects.count() == 0
