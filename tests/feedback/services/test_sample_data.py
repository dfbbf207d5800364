"""Invented history goes in by the door, is labelled and flagged by the real jobs, and goes out again whole."""

import pytest
from django.db import connection
from django.utils import timezone

from feedback.models import AgentSession, Flag, Label, LedgerItem, OutcomeCount, Turn, UserSignal
from feedback.selectors import accept_share
from feedback.services import label, sample_data
from jobs import services as jobs
from registry.errors import Conflict
from registry.tenancy import tenant
from tests.console import factories


@pytest.fixture
def loaded(project):
    with tenant(project.id):
        receipt = sample_data.load(project.id, actor="owner")
        Turn.objects.update(settle_due=timezone.now())  # the decision window closes two minutes after
    label.ask_for_settling()
    while (job := jobs.claim_next(["default"], "test")) is not None:
        jobs.run(job)
    return receipt


def test_every_item_is_accepted_and_marked_as_simulated(project, loaded):
    assert set(loaded.outcomes) == {"accepted"} and loaded.orphans == 0
    with tenant(project.id):
        assert Turn.objects.count() == sample_data.NUM_TURNS
        assert set(Turn.objects.values_list("source", flat=True)) == {"simulated"}
        assert set(Turn.objects.values_list("policy", flat=True)) == {None}
        assert Turn.objects.filter(at__gt=timezone.now()).count() == 0


def test_labels_and_flags_are_made_of_it_as_of_real_turns(project, loaded):
    with tenant(project.id):
        assert Turn.objects.filter(settled_at=None).count() == 0
        assert Label.objects.count() >= sample_data.NUM_TURNS
        assert {"malformed_output", "repeated_retry"} <= set(Flag.objects.values_list("rule", flat=True))
        shares = {group.key: group.share for group in accept_share(by="model")}
    assert shares["example-large"] > shares["example-small"] > 0.2


def test_it_is_for_an_empty_project(project):
    with tenant(project.id):
        factories.make_policy()
        factories.make_turn("real")
        assert not sample_data.is_loadable()
        with pytest.raises(Conflict, match="empty project"):
            sample_data.load(project.id, actor="owner")


def test_it_goes_out_whole_and_leaves_what_is_real(project, loaded):
    with tenant(project.id):
        factories.make_policy()
        real = factories.make_turn(f"{sample_data.MARK}looks-like-it-but-is-not")
        assert sample_data.remove(project.id, actor="owner") == sample_data.NUM_TURNS
        assert list(Turn.objects.all()) == [real]
        assert UserSignal.objects.exclude(turn=real).count() == LedgerItem.objects.count() == Flag.objects.count() == 0
        assert AgentSession.objects.count() == 1 and Label.objects.count() == 1
        counts = dict(OutcomeCount.objects.values_list("outcome", "count"))
        assert counts["accepted"] == 0 and counts["deleted"] == sum(loaded.outcomes.values())
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM feedback_turnpayload WHERE project_id = %s", [project.id])
            assert cursor.fetchone()[0] == 1


def test_what_was_removed_can_be_loaded_again(project, loaded):
    with tenant(project.id):
        sample_data.remove(project.id, actor="owner")
        assert sample_data.load(project.id, actor="owner").outcomes == loaded.outcomes
