"""Answers of reviewers: all kept, settled once, audited, and taken back together with what they did."""

import threading
from datetime import UTC, datetime

import pytest
from django.db import connection

from feedback.models import Flag, FlagState, ReviewResponse, Turn
from feedback.services import label, review_queue
from feedback.services.record import record_items
from feedback.services.review import Answer, last_answered, respond, undo
from feedback.services.triage import triage_turn
from feedback.wire import SignalItem, TurnItem
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import AuditEvent
from registry.services import change_project_settings, create_project
from registry.tenancy import tenant

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
FINE, EXCLUDE = Answer(resolution="fine"), Answer(resolution="excluded")


def accepted(project, completion: str = "a + b") -> None:
    turn = TurnItem(id="t1", session="s", at=NOW, prompt="p", completion=completion)
    signal = SignalItem(id="g1", kind="accept", turn="t1", at=NOW)
    record_items(project.id, [turn, signal], received_at=NOW)
    with tenant(project.id):
        label.label_turns(project.id, ["t1"], now=NOW)


def override(reward: float | None) -> Answer:
    return Answer(resolution="overridden", reward=reward)


def training(project) -> tuple[bool, float | None]:
    with tenant(project.id):
        turn = Turn.objects.get()
        return turn.is_excluded, turn.reward_override


@pytest.fixture
def flag(project) -> Flag:
    accepted(project)
    with tenant(project.id):
        triage_turn(project.id, "t1", {"unit_tests": 0.0})
        return Flag.objects.get()


def ask_for(project, responses: int) -> None:
    with tenant(project.id):
        change_project_settings(project, actor="test", review_responses=responses)


@pytest.fixture
def two_needed(project) -> None:
    ask_for(project, 2)


@pytest.fixture
def answer(project, flag):
    """answer("ann", FINE) -> the receipt."""

    def give(reviewer: str, what: Answer = FINE, *, of: Flag = flag):
        with tenant(project.id):
            return respond(of, what, reviewer=reviewer)

    return give


@pytest.fixture
def take_back(project, flag):
    def give(reviewer: str):
        with tenant(project.id):
            return undo(flag, reviewer=reviewer)

    return give


def state(project, flag) -> tuple[str, str | None]:
    with tenant(project.id):
        flag.refresh_from_db()
    return flag.state, flag.resolution


pytestmark = pytest.mark.django_db


def test_labelling_alone_finds_what_needs_no_scores(project):
    accepted(project, completion=" ")
    with tenant(project.id):
        assert Flag.objects.get().rule == "empty_output"


def test_looking_again_makes_no_second_flag_and_reopens_none(flag, project, answer):
    answer("ann")
    with tenant(project.id):
        triage_turn(project.id, "t1", {"unit_tests": 0.0})
        triage_turn(project.id, "nobody's", {"unit_tests": 0.0})
        assert Flag.objects.get().state == FlagState.RESOLVED


@pytest.mark.parametrize(
    ("what", "after"),
    [(FINE, (False, None)), (EXCLUDE, (True, None)), (override(-0.5), (False, -0.5)), (override(0.0), (False, 0.0))],
)
def test_an_answer_changes_what_is_trained_on_and_is_audited(flag, project, what, after):
    with tenant(project.id):
        respond(flag, Answer(resolution=what.resolution, reward=what.reward, note="looked"), reviewer="ann")
        event = AuditEvent.objects.get(verb="resolve")
    assert training(project) == after
    assert (event.actor, event.reason, event.before["state"]) == ("ann", "looked", "open")
    assert (event.after["resolution"], event.after["reward_override"]) == (what.resolution, what.reward)


@pytest.mark.parametrize(
    ("what", "field"),
    [(override(None), "reward"), (override(float("nan")), "reward"), (override(1.5), "reward"),
     (Answer(resolution="fine", reward=0.5), "reward"), (Answer(resolution="maybe"), "resolution"),
     (Answer(resolution="fine", gold="silence"), "gold"), (Answer(resolution="fine", note="x" * 4001), "note"),
     (Answer(resolution="fine", note="\x00"), "note")],
)  # fmt: skip
def test_an_answer_that_makes_no_sense_is_refused(flag, answer, what, field):
    with pytest.raises(InvalidInput) as refused:
        answer("ann", what)
    assert refused.value.field == field


def test_a_gold_label_is_kept_with_reviewer_and_time(flag, project, answer):
    answer("ann", Answer(resolution="fine", gold="reject"))
    with tenant(project.id):
        kept = ReviewResponse.objects.get()
    assert (kept.gold, kept.reviewer) == ("reject", "ann") and kept.at is not None


def test_an_unknown_flag_and_another_projects_are_not_found(flag, project, other_project):
    with tenant(other_project.id), pytest.raises(NotFound):
        respond(flag.pk, FINE, reviewer="stranger")
    with tenant(project.id), pytest.raises(NotFound):
        respond(flag.pk + 1000, FINE, reviewer="ann")


def test_a_deleted_target_takes_its_flag_along_and_an_answer_is_told_so(flag, project, answer):
    with tenant(project.id):
        Turn.objects.all().delete()
        assert review_queue.hold_next(reviewer="ann") is None
    with pytest.raises(NotFound, match="its turn was deleted"):
        answer("ann")


def test_the_same_person_answers_once_until_they_take_it_back(flag, answer, take_back):
    answer("ann")
    with pytest.raises(Conflict, match="undo it first"):
        answer("ann", EXCLUDE)
    take_back("ann")
    assert answer("ann", EXCLUDE).flags[0].resolution == "excluded"


def test_one_answer_settles_every_open_flag_of_the_turn(flag, project, answer):
    with tenant(project.id):
        other = Flag.objects.create(turn=flag.turn, rule="length_change", reason="long")
        settled = Flag.objects.create(turn=flag.turn, rule="repeated_retry", reason="r", state="resolved")
    assert {one.pk for one in answer("ann").flags} == {flag.pk, other.pk}
    assert state(project, other)[0] == "resolved" and state(project, settled)[1] is None


def test_a_flag_raised_for_others_is_not_settled_by_who_raised_it(flag, project, answer):
    with tenant(project.id):
        raised = review_queue.raise_flag("t1", reason="not sure", raised_by="ann")
    answer("ann")
    assert state(project, raised) == ("open", None)
    answer("bob", of=raised)
    assert state(project, raised)[0] == "resolved"


class TestSeveralReviewers:
    """G.34 and C.16: answers overlap; all are kept, and the flag is settled once."""

    def test_of_two_answers_to_one_item_both_are_kept_and_the_first_decides(self, flag, project, answer):
        answer("ann", EXCLUDE)
        late = answer("bob", override(1.0))
        assert late.is_late and state(project, flag) == ("resolved", "excluded")
        assert training(project) == (True, None)
        with tenant(project.id):
            assert set(ReviewResponse.objects.values_list("reviewer", flat=True)) == {"ann", "bob"}
            assert AuditEvent.objects.filter(verb="answer", actor="bob").count() == 1

    def test_a_flag_waits_for_the_second_answer(self, flag, project, answer, two_needed):
        assert answer("ann", EXCLUDE).num_missing == 1
        assert state(project, flag) == ("open", None) and training(project) == (False, None)
        assert answer("bob", EXCLUDE).num_missing == 0
        assert state(project, flag) == ("resolved", "excluded") and training(project) == (True, None)

    def test_two_overrides_meet_in_the_middle(self, flag, project, answer, two_needed):
        answer("ann", override(-1)), answer("bob", override(0))
        assert training(project) == (False, -0.5)

    def test_g32_the_late_submit_of_the_first_is_kept_when_the_second_was_faster(self, flag, project, answer):
        with tenant(project.id):
            assert review_queue.hold(flag.pk, reviewer="ann").is_mine
        answer("bob", EXCLUDE)
        assert answer("ann", FINE).is_late
        with tenant(project.id):
            kept = dict(ReviewResponse.objects.values_list("reviewer", "is_late"))
        assert kept == {"bob": False, "ann": True}


class TestUndo:
    def test_a_settled_item_is_open_again_and_its_effect_gone_and_audited(self, flag, project, answer, take_back):
        answer("ann", EXCLUDE)
        take_back("ann")
        assert state(project, flag) == ("open", None) and training(project) == (False, None)
        with tenant(project.id):
            event = AuditEvent.objects.get(verb="undo")
            kept = ReviewResponse.objects.get()
        assert (event.actor, event.before["is_excluded"], event.after["is_excluded"]) == ("ann", True, False)
        assert kept.withdrawn_at is not None and last_is_none(project, "ann")

    def test_it_takes_only_its_own_effect_back(self, flag, project, answer, take_back):
        answer("ann", override(-0.5))
        with tenant(project.id):
            second = review_queue.raise_flag("t1", reason="again", raised_by="bob")
        answer("carl", override(0.5), of=second)
        assert training(project) == (False, 0.5)
        with tenant(project.id):
            undo(second, reviewer="carl")
        assert training(project) == (False, -0.5)

    def test_it_reopens_every_flag_that_the_answer_settled(self, flag, project, answer, take_back):
        with tenant(project.id):
            other = Flag.objects.create(turn=flag.turn, rule="length_change", reason="long")
        answer("ann", EXCLUDE)
        take_back("ann")
        assert state(project, flag)[0] == state(project, other)[0] == "open"

    def test_a_late_answer_takes_the_place_of_one_taken_back(self, flag, project, answer, take_back):
        answer("ann", EXCLUDE), answer("bob", override(0.25))
        take_back("ann")
        assert state(project, flag) == ("resolved", "overridden") and training(project) == (False, 0.25)

    def test_a_late_answer_is_taken_back_without_effect(self, flag, project, answer, take_back):
        answer("ann", EXCLUDE), answer("bob", FINE)
        take_back("bob")
        assert state(project, flag) == ("resolved", "excluded")

    def test_what_counted_goes_on_counting_when_fewer_answers_are_asked_for_by_now(
        self, flag, project, answer, take_back
    ):
        ask_for(project, 3)
        answer("ann", FINE), answer("bob", EXCLUDE), answer("carl", EXCLUDE), answer("dan", FINE)
        ask_for(project, 1)
        take_back("carl")
        # of ann's and bob's words the one that teaches less decides; dan came late and is not needed
        assert state(project, flag) == ("resolved", "excluded") and training(project) == (True, None)
        with tenant(project.id):
            assert ReviewResponse.objects.get(reviewer="dan").is_late

    def test_a_late_answer_counts_once_the_flag_is_open_again(self, flag, project, answer, take_back):
        answer("ann", EXCLUDE), answer("bob", FINE)
        ask_for(project, 2)
        assert take_back("ann").num_missing == 1
        assert answer("carl", FINE).num_missing == 0
        assert state(project, flag) == ("resolved", "fine")

    def test_nobody_takes_back_what_another_said(self, flag, answer, take_back):
        answer("ann")
        with pytest.raises(Conflict, match="no answer here"):
            take_back("bob")

    def test_every_change_of_an_override_is_a_new_revision(self, flag, project, answer, take_back):
        answer("ann", override(-1)), take_back("ann"), answer("ann", FINE)
        with tenant(project.id):
            assert Turn.objects.get().reward_revision == 2


def last_is_none(project, reviewer: str) -> bool:
    with tenant(project.id):
        return last_answered(reviewer) is None


def together(*acts) -> list:
    """Run at the same moment, each in its own thread and connection; what they return or raise."""
    start, results = threading.Barrier(len(acts)), []

    def run(act) -> None:
        try:
            start.wait()
            results.append(act())
        except Exception as error:
            results.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("needed", "people"), [(1, 2), (2, 3)])
def test_g34_answers_at_the_same_moment_are_all_stored_and_the_flag_is_settled_once(needed, people):
    project = create_project("shared", "Shared", review_responses=needed)
    accepted(project, completion=" ")
    with tenant(project.id):
        flag = Flag.objects.get()

    def act(name: str):
        def give():
            with tenant(project.id):
                return respond(flag.pk, EXCLUDE, reviewer=name)

        return give

    receipts = together(*(act(f"reviewer-{i}") for i in range(people)))
    assert sorted(receipt.is_late for receipt in receipts) == [False] * needed + [True] * (people - needed)
    with tenant(project.id):
        assert ReviewResponse.objects.count() == people
        assert AuditEvent.objects.filter(verb="resolve").count() == 1
        assert Flag.objects.get().state == FlagState.RESOLVED
