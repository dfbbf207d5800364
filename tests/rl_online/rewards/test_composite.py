import copy
import json
import math

import pytest

from evals.scorers.registry import SCORERS
from rl_online.rewards.composite import BODIES, DEFAULT_BODY, InvalidRewardSpec, parse_reward_spec, reward_of

DEFAULT = parse_reward_spec(DEFAULT_BODY)


def spec(**changes):
    return parse_reward_spec({**copy.deepcopy(DEFAULT_BODY), **changes})


@pytest.mark.parametrize(("outcome", "value"), [("accept", 0.75), ("reject", -0.25), ("silence", 0.0)])
def test_the_default_recipe_is_cursors_table(outcome, value):
    assert reward_of(DEFAULT, outcome=outcome, scores={}).value == value


def test_an_unknown_label_gives_no_reward_rather_than_zero():
    reward = reward_of(DEFAULT, outcome="unknown", scores={"unit_tests": 1.0})
    assert (reward.value, reward.reason) == (None, "unknown: the label")


def test_a_scorer_of_weight_0_is_shown_and_changes_nothing():
    reward = reward_of(DEFAULT, outcome="accept", scores={"unit_tests": 0.0, "executability": None})
    assert reward.value == 0.75
    assert reward.breakdown["unit_tests"] == {"value": 0.0, "weight": 0.0, "part": 0.0}
    assert reward.breakdown["executability"]["part"] is None


def test_weights_are_summed_and_clipped():
    # .75 + 2 * .5 = 1.75, clipped to 1
    weighed = spec(scorers={"unit_tests": {"weight": 2.0}})
    assert reward_of(weighed, outcome="accept", scores={"unit_tests": 0.5}).value == 1.0
    assert reward_of(weighed, outcome="reject", scores={"unit_tests": 0.25}).value == 0.25


def test_a_missing_score_that_carries_weight_leaves_the_turn_out():
    weighed = spec(scorers={"unit_tests": {"weight": 0.5}})
    reward = reward_of(weighed, outcome="accept", scores={"unit_tests": None})
    assert (reward.value, reward.reason) == (None, "unknown: unit_tests")


def test_a_gate_overrules_a_happy_user():
    gated = spec(gates=[{"scorer": "executability", "at_least": 1.0, "otherwise": -0.25}])
    reward = reward_of(gated, outcome="accept", scores={"executability": 0.0})
    assert (reward.value, reward.reason) == (-0.25, "gate: executability is 0, at least 1 is asked")
    assert reward_of(gated, outcome="accept", scores={"executability": 1.0}).value == 0.75


def test_a_gate_that_could_not_be_measured_leaves_the_turn_out():
    gated = spec(gates=[{"scorer": "lint"}])
    assert reward_of(gated, outcome="accept", scores={}).reason == "unknown: lint"


def test_tests_alone_may_teach_without_any_label():
    only_tests = spec(label={"weight": 0}, scorers={"unit_tests": {"weight": 1.0}})
    assert reward_of(only_tests, outcome="unknown", scores={"unit_tests": 1.0}).value == 1.0


def test_the_breakdown_is_json():
    reward = reward_of(DEFAULT, outcome="accept", scores={"unit_tests": 1.0})
    assert json.loads(json.dumps(reward.breakdown, allow_nan=False)) == reward.breakdown


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "body"),
        ({"labels": {}}, "labels"),
        ({"label": {"accept": "1"}}, "label.accept"),
        ({"label": {"ignore": 1}}, "label.ignore"),
        ({"label": {"weight": math.nan}}, "label.weight"),
        ({"label": {"weight": 0}}, "label.weight"),
        ({"scorers": {"unit_tests": {}}}, "scorers.unit_tests.weight"),
        ({"scorers": {"unit_tests": {"weight": True}}}, "scorers.unit_tests.weight"),
        ({"scorers": {"label": {"weight": 1}}}, "scorers.label"),
        ({"scorers": []}, "scorers"),
        ({"gates": [{"at_least": 1}]}, "gates.0.scorer"),
        ({"gates": [{"scorer": "x", "at_least": 2}]}, "gates.0.at_least"),
        ({"clip": [1, -1]}, "clip"),
        ({"clip": [0, math.inf]}, "clip.1"),
    ],
)
def test_a_wrong_recipe_names_the_field(body, field):
    with pytest.raises(InvalidRewardSpec) as caught:
        parse_reward_spec(body)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("scorers", "field"),
    [
        ({"a": {"weight": 1, "optional": 1}}, "scorers.a.optional"),
        ({"a": {"weight": 1, "needs": ["b"]}}, "scorers.a.needs"),
        ({"a": {"weight": 1, "needs": {"b": 2}}}, "scorers.a.needs.b"),
        ({"a": {"weight": 1, "optional": True}}, "scorers"),
        ({"a": {"weight": 1, "optional": True}, "b": {"weight": -1}}, "scorers.b.weight"),
        ({"scale": {"weight": 1}}, "scorers.scale"),
    ],
)
def test_optional_scores_must_leave_something_to_weigh(scorers, field):
    with pytest.raises(InvalidRewardSpec) as caught:
        spec(scorers=scorers)
    assert caught.value.field == field


def test_an_optional_score_leaves_the_label_as_it_is():
    # .75 + (1 x .5) x 1.5 / 1
    mixed = spec(scorers={"tests": {"weight": 1}, "lint": {"weight": 0.5, "optional": True}}, clip=[-9, 9])
    reward = reward_of(mixed, outcome="accept", scores={"tests": 0.5, "lint": None})
    assert reward.value == pytest.approx(1.5)
    assert reward.breakdown["tests"] == {"value": 0.5, "weight": 1.5, "part": 0.75}


def test_what_a_score_needs_and_nobody_measured_is_unknown():
    needy = spec(scorers={"lint": {"weight": 1, "needs": {"runs": 1}}})
    reward = reward_of(needy, outcome="accept", scores={"lint": 1.0})
    assert (reward.value, reward.reason) == (None, "unknown: lint")
    assert reward.breakdown["lint"]["reason"] == "runs was not measured"


@pytest.mark.parametrize("name", BODIES)
def test_every_recipe_that_stands_ready_asks_for_scorers_there_are(name):
    assert parse_reward_spec(BODIES[name]).asked <= SCORERS.keys()
