"""What the pages say of corrections: how many were taught, are held with a candidate, are spent, and wait."""

import re

import pytest
from django.urls import reverse

from console.reads.corrections import Corrections, corrections, sent_with
from feedback.models import Turn
from registry.models import Deployment
from registry.tenancy import tenant
from rl_online.models import BatchSample, UpdateRun
from tests.console import factories


@pytest.fixture
def change(project, loop):
    """change(i) -> turn i, which version 2 was trained on, says something else by now."""

    def relabel(i: int) -> Turn:
        turn = loop.turns[i]
        factories.settle(turn, "reject" if turn.outcome == "accept" else "accept")
        return turn

    return relabel


def send(turn: Turn, run: UpdateRun) -> None:
    """As sealing writes it."""
    BatchSample.objects.create(
        batch=run.batch, turn_ref=turn.turn_id, session_ref="s", label_id=turn.label_id, reward=-1.0, is_correction=True
    )


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_each_correction_is_counted_once_and_in_the_right_place(project, loop, change):
    _, held, training = loop.updates
    with tenant(project.id):
        assert not corrections(loop.policy).is_any
        change(0), change(1)
        assert corrections(loop.policy) == Corrections(waiting=2)
        send(change(2), training)
        send(change(3), held)
        send(change(4), held)
        assert corrections(loop.policy) == Corrections(waiting=2, held=1, spent=2)
        assert (sent_with(training).number, sent_with(training).became) == (1, "held")
        assert (sent_with(held).number, sent_with(held).became) == (2, "spent")


def test_a_held_one_is_taught_when_its_candidate_comes_to_serve_and_a_spent_one_too(project, loop, change):
    _, held, _ = loop.updates
    with tenant(project.id):
        send(change(2), held)
        Deployment.objects.update(checkpoint=held.checkpoint)  # a person promotes it against the gate
        assert corrections(loop.policy) == Corrections(taught=1)
        assert sent_with(held).became == "taught"
        Deployment.objects.update(checkpoint=loop.checkpoints[1])  # and rolls it back
        assert corrections(loop.policy) == Corrections(spent=1)


def test_one_that_is_spent_waits_again_only_when_its_label_changes_once_more(project, loop, change):
    _, held, _ = loop.updates
    with tenant(project.id):
        send(change(2), held)
        assert corrections(loop.policy).waiting == 0
        change(2)
        found = corrections(loop.policy)
    assert (found.spent, found.waiting) == (1, 0) and found.left_out == ()  # it says again what was learnt first


def test_what_cannot_be_sent_is_named(project, loop, change):
    with tenant(project.id):
        turn = change(5)
        BatchSample.objects.filter(turn_ref=turn.turn_id).update(is_heldout=True)
        assert corrections(loop.policy) == Corrections(left_out=(("correction of what was only measured", 1),))


def test_the_pages_say_so(as_owner, project, loop, change):
    _, held, training = loop.updates
    with tenant(project.id):
        change(0)
        send(change(2), training)
        send(change(3), held)
    there = reverse("console:update-corrections", args=["editor"])
    assert there in as_owner.get(reverse("console:updates", args=["editor"])).content.decode()
    said = words(as_owner.get(there).content.decode())
    assert "1 waits for the next batch · 0 taught to what serves · 1 held until the gate or a person decides" in said
    assert "1 spent on candidates that do not serve, not sent again" in said
    page = words(as_owner.get(reverse("console:update", args=["editor", held.id])).content.decode())
    assert "Corrections 1 spent : this candidate does not serve, and they are not sent again" in page
    page = words(as_owner.get(reverse("console:update", args=["editor", training.id])).content.decode())
    assert "Corrections 1 held until the gate or a person decides" in page


def test_a_policy_without_corrections_has_nothing_to_say(as_owner, project, loop):
    assert as_owner.get(reverse("console:update-corrections", args=["editor"])).content.decode().strip() == ""


def test_a_project_without_a_policy_has_none(as_owner, project):
    assert as_owner.get(reverse("console:update-corrections", args=["editor"])).status_code == 200
