"""Flags appear once, and a reviewer's word is kept, audited and not overwritten."""

import threading
from datetime import UTC, datetime

import pytest
from django.db import connection

from feedback.models import Flag, FlagState, Turn
from feedback.services import label
from feedback.services.record import record_items
from feedback.services.review import resolve_flag
from feedback.services.triage import triage_turn
from feedback.wire import SignalItem, TurnItem
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import AuditEvent
from registry.services import create_project
from registry.tenancy import tenant

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


def accepted(project, completion: str = "a + b") -> None:
    turn = TurnItem(id="t1", session="s", at=NOW, prompt="p", completion=completion)
    signal = SignalItem(id="g1", kind="accept", turn="t1", at=NOW)
    record_items(project.id, [turn, signal], received_at=NOW)
    with tenant(project.id):
        label.label_turns(project.id, ["t1"], now=NOW)


@pytest.fixture
def flag(project) -> Flag:
    accepted(project)
    with tenant(project.id):
        triage_turn(project.id, "t1", {"unit_tests": 0.0})
        return Flag.objects.get()


@pytest.mark.django_db
def test_labelling_alone_finds_what_needs_no_scores(project):
    accepted(project, completion=" ")
    with tenant(project.id):
        assert Flag.objects.get().rule == "empty_output"


@pytest.mark.django_db
def test_looking_again_makes_no_second_flag_and_reopens_none(flag, project):
    with tenant(project.id):
        resolve_flag(flag, resolution="fine", reviewer="ann")
        triage_turn(project.id, "t1", {"unit_tests": 0.0})
        triage_turn(project.id, "nobody's", {"unit_tests": 0.0})
        assert Flag.objects.get().state == FlagState.RESOLVED


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("resolution", "reward", "training"),
    [("fine", None, (False, None)), ("excluded", None, (True, None)), ("overridden", -0.5, (False, -0.5)),
     ("overridden", 0.0, (False, 0.0))],
)  # fmt: skip
def test_a_resolution_changes_what_is_trained_on_and_is_audited(flag, project, resolution, reward, training):
    with tenant(project.id):
        resolve_flag(flag, resolution=resolution, reward_override=reward, note="looked", reviewer="ann")
        turn = Turn.objects.get()
        assert (turn.is_excluded, turn.reward_override) == training
        event = AuditEvent.objects.get(verb="resolve")
        assert (event.actor, event.reason, event.before["state"]) == ("ann", "looked", "open")
        assert (event.after["resolution"], event.after["reward_override"]) == (resolution, reward)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("resolution", "reward", "field"),
    [("overridden", None, "reward"), ("overridden", float("nan"), "reward"), ("overridden", 1.5, "reward"),
     ("fine", 0.5, "reward"), ("maybe", None, "resolution")],
)  # fmt: skip
def test_a_resolution_that_makes_no_sense_is_refused(flag, project, resolution, reward, field):
    with tenant(project.id), pytest.raises(InvalidInput) as refused:
        resolve_flag(flag, resolution=resolution, reward_override=reward, reviewer="ann")
    assert refused.value.field == field


@pytest.mark.django_db
def test_a_resolved_flag_is_not_overwritten_and_an_unknown_one_not_found(flag, project, other_project):
    with tenant(project.id):
        resolve_flag(flag, resolution="fine", reviewer="ann")
        with pytest.raises(Conflict, match="ann"):
            resolve_flag(flag, resolution="excluded", reviewer="bob")
    with tenant(other_project.id), pytest.raises(NotFound):
        resolve_flag(flag.pk, resolution="fine", reviewer="stranger")


def test_of_two_reviewers_at_once_one_wins(transactional_db):
    project = create_project("shared", "Shared")
    accepted(project, completion=" ")
    start, results = threading.Barrier(2), []

    def review(name: str) -> None:
        try:
            start.wait()
            with tenant(project.id):
                resolve_flag(Flag.objects.get(), resolution="excluded", reviewer=name)
            results.append(name)
        except Conflict:
            results.append("conflict")
        finally:
            connection.close()

    threads = [threading.Thread(target=review, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count("conflict") == 1
    with tenant(project.id):
        assert Flag.objects.get().reviewer == next(name for name in results if name != "conflict")
