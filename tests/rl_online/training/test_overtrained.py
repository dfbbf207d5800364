from statistics import fmean

import pytest
import torch

from tests.rl_online.training.overtrained import build, scores


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    torch.set_num_threads(1)
    return build(tmp_path_factory.mktemp("overtrained"))


def test_the_taught_policy_answers_most_problems_it_never_saw(toy):
    assert fmean(scores(toy.taught, toy.held_out)) >= 0.6


def test_the_overtrained_policy_is_nearly_perfect_on_what_it_was_trained_on(toy):
    assert fmean(scores(toy.overtrained, toy.trained_on)) >= 0.95


def test_the_overtrained_policy_lost_at_least_fifteen_points_on_held_out_problems(toy):
    before, after = (fmean(scores(folder, toy.held_out)) for folder in (toy.taught, toy.overtrained))
    assert before - after >= 0.15
