"""Two reviewers never get the same item, and nobody keeps one by going away."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from feedback.models import AgentSession, Flag, ReviewDraft, ReviewReservation, Turn
from feedback.services import review_queue as queue
from feedback.services.review import Answer, respond
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import AuditEvent
from registry.services import change_project_settings, create_project
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db

NOW = timezone.now()
LATER = NOW + queue.LEASE + timedelta(seconds=1)


def make_turns(number: int, **columns) -> list[Turn]:
    session, _ = AgentSession.objects.get_or_create(session_id="s", defaults={"first_at": NOW, "last_at": NOW})
    made = Turn.objects.count()
    values = {"policy": "editor", "version": 1, "outcome": "accept", "settled_at": NOW} | columns
    return Turn.objects.bulk_create(
        Turn(turn_id=f"t{made + i}", session=session, index=i, at=NOW, **values) for i in range(number)
    )


def make_flags(number: int, rule: str = "tests_disagree", **columns) -> list[Flag]:
    return Flag.objects.bulk_create(
        Flag(turn=turn, rule=rule, reason="r", created_at=NOW) for turn in make_turns(number, **columns)
    )


@pytest.fixture(autouse=True)
def inside(request):
    """Most of these tests live inside one tenant."""
    if "project" not in request.fixturenames:
        yield
        return
    with tenant(request.getfixturevalue("project").id):
        yield


def test_the_most_severe_rule_comes_first_and_of_one_rule_the_newest(project):
    make_flags(2, "length_change"), make_flags(1, "sample"), make_flags(1, "tests_disagree"), make_flags(1, "by_hand")
    Flag.objects.filter(turn__turn_id="t0").update(created_at=NOW - timedelta(hours=1))
    order = [queue.hold_next(reviewer="ann") for _ in range(5)]
    assert [flag.turn.turn_id for flag in order] == ["t4", "t3", "t1", "t0", "t2"]
    assert queue.hold_next(reviewer="ann") is None


def test_the_queue_is_narrowed_by_rule_and_checkpoint(project):
    make_flags(1), make_flags(1, "length_change"), make_flags(1, version=2)
    assert queue.hold_next(reviewer="ann", narrowed=queue.Narrowed(rule="length_change")).rule == "length_change"
    narrowed = queue.Narrowed(policy="editor", version=2)
    assert queue.hold_next(reviewer="ann", narrowed=narrowed).turn.turn_id == "t2"
    assert queue.hold_next(reviewer="ann", narrowed=queue.Narrowed(policy="other")) is None


def test_an_item_that_somebody_looks_at_is_given_to_nobody_else(project):
    (flag,) = make_flags(1)
    assert queue.hold_next(reviewer="ann") == flag
    assert queue.hold_next(reviewer="bob") is None
    assert queue.hold(flag.pk, reviewer="bob") == queue.Hold(is_mine=False, others=("ann",))
    assert queue.held_by("ann") == flag and queue.held_by("bob") is None


def test_g32_when_the_heartbeat_stops_the_item_is_back_after_the_time_out(project):
    (flag,) = make_flags(1)
    queue.hold_next(reviewer="ann", now=NOW)
    assert queue.hold_next(reviewer="bob", now=NOW + queue.LEASE - timedelta(seconds=1)) is None
    assert queue.hold_next(reviewer="bob", now=LATER) == flag
    assert queue.hold(flag.pk, reviewer="ann", now=LATER) == queue.Hold(is_mine=False, others=("bob",))


def test_a_heartbeat_keeps_an_item_that_is_read_slowly(project):
    (flag,) = make_flags(1)
    queue.hold_next(reviewer="ann", now=NOW)
    beat = NOW + timedelta(seconds=60)
    assert queue.hold(flag.pk, reviewer="ann", now=beat).is_mine
    assert queue.hold_next(reviewer="bob", now=LATER) is None
    assert queue.hold_next(reviewer="bob", now=beat + queue.LEASE + timedelta(seconds=1)) == flag


def test_two_flags_of_one_turn_are_one_item(project):
    (flag,) = make_flags(1)
    Flag.objects.create(turn=flag.turn, rule="length_change", reason="r")
    assert queue.hold_next(reviewer="ann") == flag
    assert queue.hold_next(reviewer="bob") is None and queue.hold_next(reviewer="ann") is None


def test_opening_another_item_gives_the_first_back(project):
    first, second = make_flags(2)
    queue.hold(first.pk, reviewer="ann", is_opening=True)
    queue.hold(second.pk, reviewer="ann", is_opening=True)
    assert queue.hold_next(reviewer="bob") == first


def test_an_item_that_needs_two_answers_is_given_to_two_people(project):
    change_project_settings(project, actor="test", review_responses=2)
    (flag,) = make_flags(1)
    assert queue.hold_next(reviewer="ann") == queue.hold_next(reviewer="bob") == flag
    assert queue.hold_next(reviewer="carl") is None
    respond(flag, Answer(resolution="fine"), reviewer="ann")
    assert queue.hold_next(reviewer="carl") is None and queue.hold_next(reviewer="ann") is None
    queue.release(flag.pk, reviewer="bob")
    assert queue.hold_next(reviewer="ann") is None and queue.hold_next(reviewer="carl") == flag


def test_what_one_skips_others_are_given_and_oneself_only_on_asking(project):
    (flag,) = make_flags(1)
    queue.hold_next(reviewer="ann")
    queue.skip(flag.pk, reviewer="ann")
    assert queue.hold_next(reviewer="ann") is None
    assert queue.hold_next(reviewer="bob") == flag
    queue.release(flag.pk, reviewer="bob")
    assert queue.look_again(reviewer="ann") == 1 and queue.hold_next(reviewer="ann") == flag


def test_an_answer_gives_the_place_back_and_ends_the_draft(project):
    (flag,) = make_flags(1)
    queue.hold_next(reviewer="ann")
    queue.save_draft(flag.pk, {"note": "half"}, reviewer="ann")
    respond(flag, Answer(resolution="fine"), reviewer="ann")
    assert not ReviewReservation.objects.exists() and not ReviewDraft.objects.exists()


def test_a_draft_is_kept_for_its_writer_alone(project):
    (flag,) = make_flags(1)
    queue.save_draft(flag.pk, {"choice": "fine", "note": "a"}, reviewer="ann")
    queue.save_draft(flag.pk, {"choice": "excluded", "note": "ab"}, reviewer="ann")
    queue.save_draft(flag.pk, {"note": "b"}, reviewer="bob")
    assert dict(ReviewDraft.objects.values_list("reviewer", "body")) == {
        "ann": {"choice": "excluded", "note": "ab"},
        "bob": {"note": "b"},
    }


@pytest.mark.parametrize("body", [{"role": "owner"}, {"note": "x" * 9000}, {"note": "\x00"}])
def test_a_draft_holds_only_what_the_form_has(project, body):
    (flag,) = make_flags(1)
    with pytest.raises(InvalidInput):
        queue.save_draft(flag.pk, body, reviewer="ann")


@pytest.mark.parametrize("act", [
    lambda: queue.hold(99, reviewer="ann"), lambda: queue.skip(99, reviewer="ann"),
    lambda: queue.save_draft(99, {}, reviewer="ann"), lambda: queue.raise_flag("no", reason="", raised_by="ann"),
])  # fmt: skip
def test_a_flag_that_is_gone_is_said_to_be(project, act):
    with pytest.raises(NotFound):
        act()


def test_a_person_flags_a_turn_once_and_again_after_it_was_settled(project):
    make_turns(1)
    flag = queue.raise_flag("t0", reason=" odd ", raised_by="ann")
    assert (flag.rule, flag.reason, flag.raised_by) == ("by_hand", "odd", "ann")
    with pytest.raises(Conflict, match="flagged by hand already"):
        queue.raise_flag("t0", reason="me too", raised_by="bob")
    respond(flag, Answer(resolution="fine"), reviewer="carl")
    assert queue.raise_flag("t0", reason="still odd", raised_by="bob").pk != flag.pk
    assert AuditEvent.objects.filter(verb="raise").count() == 2


def test_a_sample_is_drawn_from_what_no_rule_flagged(project):
    make_flags(3), make_turns(4), make_turns(2, source="eval")
    since = NOW - timedelta(hours=1)
    assert queue.queue_sample(3, since=since, raised_by="ann") == 3
    assert queue.queue_sample(9, since=since, raised_by="ann") == 1
    sampled = Flag.objects.filter(rule="sample")
    assert {flag.turn.turn_id for flag in sampled} == {"t3", "t4", "t5", "t6"}
    assert queue.queue_sample(9, since=NOW + timedelta(hours=1), raised_by="ann") == 0


@pytest.mark.parametrize("number", [0, 201, -1])
def test_a_sample_has_a_size_that_people_can_read(project, number):
    with pytest.raises(InvalidInput):
        queue.queue_sample(number, since=NOW, raised_by="ann")


@pytest.mark.django_db(transaction=True)
def test_g32_two_reviewers_who_ask_for_the_next_a_hundred_times_in_parallel_share_no_item():
    """G.32, with threads and PostgreSQL: 200 requests, 16 at a time, on 210 items of which some are of one turn."""
    project = create_project("shared", "Shared")
    with tenant(project.id):
        flags = make_flags(200)
        Flag.objects.bulk_create(Flag(turn=flag.turn, rule="length_change", reason="r") for flag in flags[:10])
    asks = [name for _ in range(100) for name in ("ann", "bob")]
    given: dict[str, list[int]] = {"ann": [], "bob": []}
    faults: list[Exception] = []

    def work() -> None:
        try:
            while True:
                try:
                    name = asks.pop()
                except IndexError:
                    return
                with tenant(project.id):
                    flag = queue.hold_next(reviewer=name)
                given[name].append(flag.turn_id)
        except Exception as error:
            faults.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(given["ann"]) == len(given["bob"]) == 100
    assert len({*given["ann"], *given["bob"]}) == 200
