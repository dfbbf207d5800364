"""Versions of the reward spec: made, activated for a policy, and what another one would have paid."""

from datetime import timedelta

import pytest
from django.utils import timezone

from feedback.models import Turn
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import AuditEvent
from registry.tenancy import tenant
from rl_online.models import LearningPlan, RewardSpec
from rl_online.rewards.composite import DEFAULT_BODY, parse_reward_spec
from rl_online.services import reward_specs
from rl_online.services.reward_preview import repay

pytestmark = pytest.mark.django_db
KINDER = {**DEFAULT_BODY, "label": {**DEFAULT_BODY["label"], "silence": 0.25}}
TESTED = {**DEFAULT_BODY, "scorers": {"unit_tests": {"weight": 0.5}}}


@pytest.fixture
def week():
    now = timezone.now()
    return {"since": now - timedelta(days=7), "until": now + timedelta(minutes=1)}


def test_a_new_version_is_used_by_no_policy_until_it_is_activated(project, policy):
    with tenant(project.id):
        made = reward_specs.create_reward_spec(KINDER, actor="ann")
        plan = LearningPlan.objects.select_related("reward_spec").get()
        assert (made.version, plan.reward_spec.version) == (2, 1)
        reward_specs.activate_reward_spec(policy, made, actor="ann", reason="silence is fine")
        plan = LearningPlan.objects.select_related("reward_spec").get()
        event = AuditEvent.objects.get(object_kind="reward spec", verb="activate")
    assert plan.reward_spec.version == 2
    assert (event.object_id, event.before["spec"], event.reason) == ("default v2", "default v1", "silence is fine")


def test_a_version_that_says_the_same_is_not_made_again(project, policy):
    with tenant(project.id), pytest.raises(Conflict, match="default v1 says the same"):
        reward_specs.create_reward_spec(DEFAULT_BODY, actor="ann")


def test_a_spec_that_cannot_be_is_refused_with_the_path_of_what_is_wrong(project, policy):
    wrong = {**DEFAULT_BODY, "gates": [{"scorer": "unit_tests", "at_least": 2}]}
    with tenant(project.id), pytest.raises(InvalidInput) as caught:
        reward_specs.create_reward_spec(wrong, actor="ann")
    assert caught.value.field == "gates.0.at_least"


def test_a_policy_without_a_plan_learns_by_nothing(project, policy):
    with tenant(project.id):
        LearningPlan.objects.all().delete()
        with pytest.raises(NotFound):
            reward_specs.activate_reward_spec(policy, RewardSpec.objects.get(), actor="ann")


def test_what_is_active_cannot_be_activated_again(project, policy):
    with tenant(project.id), pytest.raises(Conflict, match="already"):
        reward_specs.activate_reward_spec(policy, RewardSpec.objects.get(), actor="ann")


def test_a_spec_pays_the_same_turns_otherwise(project, judged, week):
    judged("accept")
    judged("ignore")
    with tenant(project.id):
        found = repay(parse_reward_spec(DEFAULT_BODY), parse_reward_spec(KINDER), **week)
    assert {(cell.before, cell.after): cell.n for cell in found.cells} == {
        ("positive", "positive"): 1,
        ("zero", "positive"): 1,
    }
    means = {row.outcome: (row.n, row.mean_before, row.mean_after) for row in found.rows}
    assert means == {"accept": (1, 0.75, 0.75), "silence": (1, 0.0, 0.25), "all": (2, 0.375, 0.5)}


def test_a_turn_without_the_score_a_spec_needs_is_unknown_not_zero(project, judged, week):
    judged("accept")
    with tenant(project.id):
        found = repay(parse_reward_spec(DEFAULT_BODY), parse_reward_spec(TESTED), **week)
    (row,) = found.rows
    assert (row.mean_after, row.num_unknown_after) == (None, 1)
    (cell,) = found.cells
    assert (cell.after, cell.examples[0].after.reason) == ("unknown", "unknown: unit_tests")


def test_a_reviewers_reward_stands_under_every_spec(project, judged, week):
    turn = judged("ignore")
    with tenant(project.id):
        Turn.objects.filter(pk=turn.pk).update(reward_override=-1.0)
        found = repay(parse_reward_spec(DEFAULT_BODY), parse_reward_spec(KINDER), **week)
    assert (found.num_changed, found.num_overridden, found.rows[0].mean_after) == (0, 1, -1.0)
