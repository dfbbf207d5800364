import pytest

from rl_online.training.reported import facts_of, report_samples
from rl_online.training.samples import Stream, TrainingSample
from tests.rl_online.training.tiny_update import make_request, make_samples, run


def answer(*, advantage=0.0, length=2, stream=Stream.RL, **facts):
    return TrainingSample(
        token_ids=list(range(length + 1)), positions=list(range(1, length + 1)), weights={stream: 1.0}, reward=0.0,
        advantage=advantage, facts=facts,
    )  # fmt: skip


def test_a_sample_tells_who_paid_it_where_it_comes_from_and_what_it_did():
    row = {
        "kind": "rl", "source": "production", "conduct": {"asks_back": True, "has_bad_call": False},
        "reward_breakdown": {"label": {"part": 0.75}, "unit_tests": {"part": None}, "scale": 2.0, "pair": "edit"},
    }  # fmt: skip
    (sample,) = make_samples(1, reward=0.5, row=row)
    assert facts_of(sample) == {
        "reward_label": 0.75, "reward_from_production": 0.5, "guard_asks_back": 1.0, "guard_has_bad_call": 0.0,
    }  # fmt: skip


def test_means_are_over_those_that_know_and_credit_over_those_that_did():
    samples = [
        answer(advantage=0.6, guard_asks_back=1.0, reward_label=1.0),
        answer(advantage=[0.2, 0.0], guard_asks_back=1.0),
        answer(advantage=-0.5, guard_asks_back=0.0, length=5),
        answer(advantage=9.0, length=99, stream=Stream.CE, reward_label=9.0),  # a demonstration is nobody's answer
    ]
    found = report_samples(samples, [[-1.0, -2.0], [-3.0, -2.0], [-1.0] * 5, [-7.0] * 99])
    assert found == {
        "guard_asks_back": pytest.approx(2 / 3), "reward_label": 1.0, "credit_of_asks_back": pytest.approx(0.35),
        "length": 3.0, "entropy": pytest.approx(13 / 9),
    }  # fmt: skip


def test_a_step_without_an_answer_says_nothing():
    assert report_samples([answer(stream=Stream.CE)], [[-1.0, -1.0]]) == {}


def test_an_update_reports_its_guards_with_each_step(tmp_path):
    row = {"kind": "rl", "source": "production", "conduct": {"is_without_edit": True}}
    seen = []
    run(make_request(tmp_path, make_samples(16, row=row)), on_progress=seen.append)
    steps = [one.metrics for one in seen if one.metrics]
    assert [one["guard_is_without_edit"] for one in steps] == [1.0, 1.0]
    assert all(one["credit_of_is_without_edit"] == pytest.approx(one["advantage"]) for one in steps)
