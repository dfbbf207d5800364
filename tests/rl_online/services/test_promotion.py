"""The alias moves one step at a time, for a reason, and leaves a trail."""

from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from django.db import connection

from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online.models import GateReport, UpdateRun
from rl_online.services import promotion

pytestmark = pytest.mark.django_db


@pytest.fixture
def candidate(judged, sealed, trained) -> Checkpoint:
    judged("accept"), judged("reject")
    return trained(sealed())


def say_gate(checkpoint: Checkpoint, decision: str) -> None:
    GateReport.objects.create(checkpoint=checkpoint, decision=decision, reasons=[], evidence={})


def states(policy) -> dict[int, str]:
    return dict(Checkpoint.objects.filter(policy=policy).values_list("version", "state"))


def test_a_proven_candidate_is_promoted_and_its_predecessor_retired(project, policy, candidate):
    with tenant(project.id):
        say_gate(candidate, "promote")
        deployment = promotion.promote(candidate, actor="strop")
        assert states(policy) == {1: "retired", 2: "serving"}
        assert (deployment.checkpoint.version, deployment.previous.version, deployment.fence) == (2, 1, 2)
        assert UpdateRun.objects.get().state == "promoted"
        event = AuditEvent.objects.get(verb="promote")
    assert (event.actor, event.before, event.after["serving"]) == ("strop", {"serving": "editor@1"}, "editor@2")


@pytest.mark.parametrize("decision", [None, "hold", "extend"])
def test_promoting_against_the_gate_needs_a_reason(project, policy, candidate, decision):
    with tenant(project.id):
        if decision:
            say_gate(candidate, decision)
        with pytest.raises(InvalidInput) as refused:
            promotion.promote(candidate, actor="ada")
        assert refused.value.field == "reason"
        promotion.promote(candidate, actor="ada", reason="the benchmark is wrong")
        event = AuditEvent.objects.get(verb="promote against the gate")
    assert event.reason == "the benchmark is wrong"


def test_the_newest_report_counts(project, candidate):
    with tenant(project.id):
        say_gate(candidate, "promote")
        say_gate(candidate, "hold")
        with pytest.raises(InvalidInput):
            promotion.promote(candidate, actor="ada")


def test_what_serves_already_cannot_be_promoted(project, policy):
    with tenant(project.id):
        first = Checkpoint.objects.select_related("policy").get(version=1)
        with pytest.raises(Conflict):
            promotion.promote(first, actor="ada", reason="again")


def test_a_rollback_serves_the_predecessor_again(project, policy, promoted, judged):
    judged("accept"), judged("reject")
    promoted()
    with tenant(project.id):
        deployment = promotion.roll_back(policy, actor="ada", reason="users complain")
        assert states(policy) == {1: "serving", 2: "retired"}
        assert (deployment.checkpoint.version, deployment.previous.version, deployment.fence) == (1, 2, 3)
        with pytest.raises(Conflict, match="no predecessor"):
            promotion.roll_back(policy, actor="ada", reason="still bad")
        assert AuditEvent.objects.get(verb="roll back").reason == "users complain"


def test_a_rollback_needs_a_reason_and_somewhere_to_go(project, policy):
    with tenant(project.id):
        with pytest.raises(InvalidInput):
            promotion.roll_back(policy, actor="ada", reason=" ")
        with pytest.raises(Conflict, match="no predecessor"):
            promotion.roll_back(policy, actor="ada", reason="worse")


def test_a_rollback_may_go_to_any_retired_version(project, policy, promoted, judged):
    for version in (1, 2):
        judged("accept", version=version), judged("reject", version=version)
        promoted()
    with tenant(project.id):
        promotion.roll_back(policy, actor="ada", reason="worse", version=1)
        assert states(policy) == {1: "serving", 2: "retired", 3: "retired"}
        with pytest.raises(Conflict):
            promotion.roll_back(policy, actor="ada", reason="worse", version=1)


def serving(policy) -> Checkpoint:
    return Checkpoint.objects.select_related("policy").get(policy=policy, state="serving")


def test_a_rollback_asked_for_twice_moves_the_line_once(project, policy, promoted, judged):
    for version in (1, 2):
        judged("accept", version=version), judged("reject", version=version)
        promoted()
    with tenant(project.id):
        seen = serving(policy)
        promotion.roll_back(policy, actor="ada", reason="worse", expected=seen)
        with pytest.raises(Conflict, match="editor@3 is no longer serving; editor@2 is"):
            promotion.roll_back(policy, actor="ada", reason="worse", expected=seen)
        assert states(policy) == {1: "retired", 2: "serving", 3: "retired"}
        assert AuditEvent.objects.filter(verb="roll back").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_rollback_that_waited_for_another_one_does_not_move_the_line_again(project, policy, promoted, judged):
    for version in (1, 2):
        judged("accept", version=version), judged("reject", version=version)
        promoted()
    with tenant(project.id):
        seen = serving(policy)

    def ask() -> str:
        try:
            with tenant(project.id):
                promotion.roll_back(policy, actor="bob", reason="worse", expected=seen)
        except Conflict as error:
            return error.message
        finally:
            connection.close()
        return "moved"

    with ThreadPoolExecutor(1) as pool:
        with tenant(project.id):
            promotion.roll_back(policy, actor="ada", reason="worse", expected=seen)
            second = pool.submit(ask)
            wait([second], timeout=1)
            assert not second.done()
        assert second.result(60) == "editor@3 is no longer serving; editor@2 is"


def test_only_a_person_rejects_and_then_nobody_promotes(project, candidate):
    with tenant(project.id):
        promotion.reject(candidate, actor="ada", reason="it insults people")
        with pytest.raises(Conflict):
            promotion.promote(candidate, actor="ada", reason="changed my mind")


def test_a_candidate_of_an_abandoned_parent_needs_a_reason_even_when_it_passed(
    project, policy, promoted, judged, sealed, trained
):
    judged("accept"), judged("reject")
    promoted()
    judged("accept", version=2), judged("reject", version=2)
    candidate = trained(sealed())
    with tenant(project.id):
        say_gate(candidate, "promote")
        promotion.roll_back(policy, actor="ada", reason="worse")
        with pytest.raises(InvalidInput, match="was made from editor@2, but editor@1 is serving"):
            promotion.promote(candidate, actor="strop")
        assert Deployment.objects.get().checkpoint.version == 1
