"""A part of the traffic for a candidate, step by step, each one audited."""

import pytest

from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online.models import GateReport
from rl_online.services import promotion
from rl_online.services.canaries import change_canary_share, start_canary, stop_canary

pytestmark = pytest.mark.django_db


@pytest.fixture
def candidate(project, policy, judged, sealed, trained) -> Checkpoint:
    """Passed by the gate."""
    judged("accept"), judged("reject")
    made = trained(sealed())
    with tenant(project.id):
        GateReport.objects.create(checkpoint=made, decision="promote", reasons=[], evidence={})
    return made


def stands() -> tuple[int | None, float]:
    deployment = Deployment.objects.select_related("canary").get()
    return deployment.canary and deployment.canary.version, deployment.canary_share


def state(candidate: Checkpoint) -> str:
    return Checkpoint.objects.get(pk=candidate.pk).state


def test_a_canary_is_started_changed_and_stopped_and_leaves_a_trail(project, policy, candidate):
    with tenant(project.id):
        start_canary(candidate, share=0.1, actor="ada")
        assert (stands(), state(candidate)) == ((2, 0.1), "canary")
        change_canary_share(policy, share=0.3, actor="ada", reason="no complaints")
        assert stands() == (2, 0.3)
        deployment = stop_canary(policy, actor="bob")
        assert (stands(), state(candidate), deployment.fence) == ((None, 0.0), "candidate", 4)
        trail = AuditEvent.objects.filter(verb__contains="canary").order_by("id")
        assert [(event.verb, event.actor, event.after["share"]) for event in trail] == [
            ("start canary", "ada", 0.1),
            ("change canary share", "ada", 0.3),
            ("stop canary", "bob", 0),
        ]


@pytest.mark.parametrize("share", [0.0, -0.1, 0.51, 1.0, float("nan"), float("inf")])
def test_a_person_gives_a_canary_more_than_nothing_and_at_most_half(project, candidate, share):
    with tenant(project.id):
        with pytest.raises(InvalidInput, match="at most 50%"):
            start_canary(candidate, share=share, actor="ada")
        assert stands() == (None, 0.0)


def test_against_the_gate_it_needs_a_reason(project, candidate):
    with tenant(project.id):
        GateReport.objects.update(decision="hold")
        with pytest.raises(InvalidInput, match="the gate said hold"):
            start_canary(candidate, share=0.1, actor="ada")
        start_canary(candidate, share=0.1, actor="ada", reason="the tests are wrong")
        assert stands() == (2, 0.1)


def test_only_a_candidate_becomes_a_canary_and_only_one_at_a_time(project, policy, candidate):
    with tenant(project.id):
        serving = Deployment.objects.get().checkpoint
        with pytest.raises(Conflict, match="is serving"):
            start_canary(serving, share=0.1, actor="ada")
        start_canary(candidate, share=0.1, actor="ada")
        with pytest.raises(Conflict, match="editor@2 is the canary"):
            start_canary(candidate, share=0.1, actor="ada")


def test_what_is_not_there_cannot_be_changed_or_stopped(project, policy, candidate):
    with tenant(project.id):
        for step in (lambda: change_canary_share(policy, share=0.1, actor="a"), lambda: stop_canary(policy, actor="a")):
            with pytest.raises(Conflict, match="has no canary"):
                step()


def test_a_promoted_canary_serves_and_a_rejected_one_loses_its_traffic(project, candidate):
    with tenant(project.id):
        start_canary(candidate, share=0.1, actor="ada")
        promotion.reject(candidate, actor="ada", reason="it insults people")
        assert (stands(), state(candidate)) == ((None, 0.0), "rejected")


def test_a_rollback_past_a_canary_leaves_it_a_candidate(project, policy, promoted, judged, sealed, trained):
    judged("accept"), judged("reject")
    promoted()
    judged("accept", version=2), judged("reject", version=2)
    third = trained(sealed())
    with tenant(project.id):
        start_canary(third, share=0.1, actor="ada", reason="not decided yet")
        promotion.roll_back(policy, actor="ada", reason="worse")
        assert (stands(), state(third)) == ((None, 0.0), "candidate")
