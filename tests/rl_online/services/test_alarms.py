"""Alarms as rows: opened once, renewed, closed by themselves or by people, told and audited."""

from datetime import timedelta

import pytest
from django.utils import timezone

from feedback.services.rollups import count_all_dirty
from jobs.models import Job
from jobs.services import claim_next, run
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import AuditEvent, Deployment, Notice
from registry.tenancy import tenant
from rl_online.alarms import Finding, Rule, Verdict
from rl_online.models import Alarm, LearningPlan
from rl_online.services import alarms
from rl_online.services.observing import findings
from tests.console import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def now():
    return timezone.now()


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield project


def raised(**facts) -> Finding:
    return Finding(rule=Rule.GATE_HELD, subject="editor", verdict=Verdict.RAISED, summary="held", **facts)


def calm() -> Finding:
    return Finding(rule=Rule.GATE_HELD, subject="editor", verdict=Verdict.CALM)


def found_of(project, rule: Rule, now) -> Finding:
    return next(one for one in findings(project.id, now=now) if one.rule is rule)


def test_a_finding_opens_one_alarm_however_often_it_is_found(inside, now):
    first = alarms.settle(inside.id, [raised()], now=now)
    again = alarms.settle(inside.id, [raised(evidence={"held": 4})], now=now + timedelta(minutes=1))
    alarm = Alarm.objects.get()
    assert (len(first), again, alarm.raised_at, alarm.evidence) == (1, [], now + timedelta(minutes=1), {"held": 4})


def test_an_alarm_whose_cause_is_gone_closes_by_itself_and_may_come_back(inside, now):
    alarms.settle(inside.id, [raised()], now=now)
    alarms.settle(inside.id, [calm()], now=now)
    assert (Alarm.objects.get().state, Alarm.objects.get().closed_by) == ("closed", "")
    assert len(alarms.settle(inside.id, [raised()], now=now)) == 1


def test_too_little_to_tell_neither_opens_nor_closes(inside, now):
    unknown = Finding(rule=Rule.GATE_HELD, subject="editor", verdict=Verdict.UNKNOWN)
    assert alarms.settle(inside.id, [unknown], now=now) == []
    alarms.settle(inside.id, [raised()], now=now)
    alarms.settle(inside.id, [unknown], now=now + timedelta(days=1))
    assert Alarm.objects.get().is_standing


def test_an_alarm_of_a_policy_that_is_gone_closes(inside, now):
    alarms.settle(inside.id, [raised()], now=now)
    alarms.settle(inside.id, [], now=now)
    assert not Alarm.objects.get().is_standing


def test_what_a_person_closed_comes_back_only_for_another_occurrence(inside, now):
    (alarm,) = alarms.settle(inside.id, [raised(about="editor@4")], now=now)
    alarms.close(alarm.pk, actor="mia", note="known, the benchmark was broken")
    assert alarms.settle(inside.id, [raised(about="editor@4")], now=now) == []
    assert len(alarms.settle(inside.id, [raised(about="editor@5")], now=now)) == 1


def test_what_a_person_closed_comes_back_once_its_rule_was_calm_for_a_while(inside, now):
    def found(verdict: Verdict, minutes: int) -> list[Alarm]:
        finding = Finding(rule=Rule.LABEL_LAG, verdict=verdict, summary="late")
        return alarms.settle(inside.id, [finding], now=now + timedelta(minutes=minutes))

    (alarm,) = found(Verdict.RAISED, 0)
    alarms.close(alarm.pk, actor="mia", note="a long import")
    assert found(Verdict.RAISED, 1) == []
    assert found(Verdict.CALM, 3) == [] and found(Verdict.RAISED, 4) == []  # a flicker of the same
    assert found(Verdict.UNKNOWN, 10) == [] and found(Verdict.RAISED, 11) == []
    assert found(Verdict.CALM, 16) == []
    assert len(found(Verdict.RAISED, 17)) == 1


def test_an_engine_that_went_away_again_calls_again_for_the_same_checkpoint(inside, now):
    away = Finding(rule=Rule.ENGINE_AWAY, subject="editor", verdict=Verdict.RAISED, summary="away", about="editor@3")
    back = Finding(rule=Rule.ENGINE_AWAY, subject="editor", verdict=Verdict.CALM)
    (alarm,) = alarms.settle(inside.id, [away], now=now)
    alarms.close(alarm.pk, actor="mia", note="restarting it")
    assert alarms.settle(inside.id, [away], now=now) == []
    alarms.settle(inside.id, [back], now=now + timedelta(minutes=2))
    assert len(alarms.settle(inside.id, [away], now=now + timedelta(minutes=9))) == 1


def test_calm_in_between_does_not_bring_back_one_occurrence_that_a_person_closed(inside, now):
    (alarm,) = alarms.settle(inside.id, [raised(about="editor@4")], now=now)
    alarms.close(alarm.pk, actor="mia", note="known")
    alarms.settle(inside.id, [calm()], now=now + timedelta(hours=1))
    assert alarms.settle(inside.id, [raised(about="editor@4")], now=now + timedelta(hours=2)) == []


def test_acknowledging_and_closing_are_audited_with_their_words(inside, now):
    (alarm,) = alarms.settle(inside.id, [raised()], now=now)
    alarms.acknowledge(alarm.pk, actor="mia", note="looking")
    alarms.close(alarm.pk, actor="mia", note="fixed the tests")
    trail = list(AuditEvent.objects.filter(object_kind="alarm").order_by("id").values_list("verb", "actor", "reason"))
    assert trail == [("open", "strop", "held"), ("acknowledge", "mia", "looking"), ("close", "mia", "fixed the tests")]


def test_of_two_people_who_acknowledge_the_first_wins(inside, now):
    (alarm,) = alarms.settle(inside.id, [raised()], now=now)
    alarms.acknowledge(alarm.pk, actor="mia")
    with pytest.raises(Conflict):
        alarms.acknowledge(alarm.pk, actor="ben")
    assert Alarm.objects.get().acknowledged_by == "mia"


def test_closing_needs_a_word_and_a_standing_alarm(inside, now):
    (alarm,) = alarms.settle(inside.id, [raised()], now=now)
    with pytest.raises(InvalidInput):
        alarms.close(alarm.pk, actor="mia", note=" ")
    alarms.close(alarm.pk, actor="mia", note="done")
    with pytest.raises(Conflict):
        alarms.close(alarm.pk, actor="mia", note="again")
    with pytest.raises(NotFound):
        alarms.close(alarm.pk + 1, actor="mia", note="none")


def test_opening_and_closing_are_told_once_each(inside, now):
    for _ in range(2):
        alarms.settle(inside.id, [raised()], now=now)
    alarms.settle(inside.id, [calm()], now=now)
    assert list(Notice.objects.order_by("id").values_list("kind", flat=True)) == ["alarm.raised", "alarm.cleared"]
    assert Notice.objects.order_by("id").first().payload["title"] == "The gate keeps holding (editor)"


def test_what_has_a_notice_of_its_own_is_not_told_twice(inside, now):
    failed = Finding(rule=Rule.UPDATE_FAILED, subject="editor", verdict=Verdict.RAISED, summary="failed", about="1")
    alarms.settle(inside.id, [failed], now=now)
    assert Alarm.objects.count() == 1 and Notice.objects.count() == 0


def test_the_job_watches_every_project_and_alarms_stay_at_home(inside, other_project):
    factories.make_policy()
    LearningPlan.objects.update(is_paused=True)
    alarms.ask_to_watch()
    while job := claim_next(["default"], "tester"):
        run(job)
    assert set(Job.objects.filter(kind=alarms.WATCH_JOB).values_list("state", flat=True)) == {"done"}
    assert "paused" in Alarm.objects.values_list("rule", flat=True)
    with tenant(other_project.id):
        assert Alarm.objects.count() == 0


# --- What is observed ---


def test_a_drop_between_two_serving_checkpoints_is_observed(inside, now):
    policy = factories.make_policy()
    first = policy.checkpoints.get()
    second = factories.make_checkpoint(policy, 2, first, state="serving")
    Deployment.objects.update(checkpoint=second, previous=first)
    for place in range(40):
        factories.make_turn(f"a{place}", version=1, user=f"u{place}", outcome="accept" if place % 10 else "reject")
        factories.make_turn(f"b{place}", version=2, user=f"v{place}", outcome="reject" if place % 10 else "accept")
    count_all_dirty(inside.id)
    found = found_of(inside, Rule.SHARE_DROP, now)
    assert (found.verdict, found.evidence["turns"], found.evidence["before"]) == (Verdict.RAISED, 40, "editor@1")


def test_silence_is_observed_from_the_last_item_and_the_day_before_it(inside, now):
    for place in range(30):
        factories.make_turn(f"s{place}", at=now - timedelta(hours=12, minutes=place))
    count_all_dirty(inside.id)
    found = found_of(inside, Rule.SILENCE, now)
    assert (found.verdict, found.evidence["items_before"]) == (Verdict.RAISED, 60)


def test_a_turn_dated_in_the_future_does_not_hide_a_silence(inside, now):
    for place in range(30):
        factories.make_turn(f"s{place}", at=now - timedelta(hours=12, minutes=place))
    factories.make_turn("ahead", at=now + timedelta(hours=2))
    count_all_dirty(inside.id)
    assert found_of(inside, Rule.SILENCE, now).verdict is Verdict.RAISED


def test_what_serves_without_an_engine_is_observed(inside, now):
    policy = factories.make_policy()
    Deployment.objects.update(changed_at=now - timedelta(minutes=5))
    assert found_of(inside, Rule.ENGINE_AWAY, now).verdict is Verdict.RAISED
    first = policy.checkpoints.get()
    factories.EngineHolding.objects.create(engine="e", checkpoint=first, tree_digest=first.tree_digest)
    assert found_of(inside, Rule.ENGINE_AWAY, now).verdict is Verdict.CALM


def test_only_the_newest_finished_update_can_have_failed(inside, now):
    loop = factories.make_loop(num_turns=6, is_training=False)
    assert found_of(inside, Rule.UPDATE_FAILED, now).verdict is Verdict.CALM
    batch = factories.make_batch(loop.policy, [])
    factories.make_update(
        loop.policy, batch, parent=loop.checkpoints[1], version=9, state="failed", error="NaN in loss"
    )
    assert found_of(inside, Rule.UPDATE_FAILED, now).summary.endswith("NaN in loss")


def test_jobs_of_another_project_are_not_counted(inside, other_project, now):
    Job.objects.create(kind="x", project_id=other_project.id, state="quarantined", run_at=now)
    assert found_of(inside, Rule.JOBS_GIVEN_UP, now).verdict is Verdict.CALM
    Job.objects.create(kind="x", project_id=inside.id, state="quarantined", run_at=now)
    assert found_of(inside, Rule.JOBS_GIVEN_UP, now).verdict is Verdict.RAISED


def test_orphans_and_late_labels_are_observed(inside, now):
    for place in range(40):
        factories.make_turn(f"s{place}", at=now - timedelta(hours=2))
    for place in range(30):
        factories.UserSignal.objects.create(
            signal_id=f"o{place}", turn_ref="never", kind="accept",
            at=now - timedelta(hours=1), received_at=now - timedelta(hours=1),
        )  # fmt: skip
    late = factories.make_turn("late", outcome=None, at=now - timedelta(minutes=9))
    late.settle_due = now - timedelta(minutes=3)
    late.save()
    count_all_dirty(inside.id)
    assert found_of(inside, Rule.ORPHANS, now).evidence["orphans"] == 30
    assert found_of(inside, Rule.LABEL_LAG, now).evidence["wait_s"] == pytest.approx(180, abs=1)


def test_watching_asks_the_same_number_of_questions_whatever_the_traffic(inside, now, django_assert_max_num_queries):
    factories.make_loop(num_turns=30)
    with django_assert_max_num_queries(20):
        findings(inside.id, now=now)
