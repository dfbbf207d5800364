"""Sampling arithmetic on distributions small enough to work by hand."""

import math

import pytest
import torch

from rl_online.serving.protocol import Sampling
from rl_online.serving.sampling import choice_seed, choose, keep_top_k, keep_top_p, processed_logprobs

INF = math.inf


def logits(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def test_temperature_divides_the_logits_before_the_softmax():
    # logits 0 and ln 4 at temperature 2 are 0 and ln 2: probabilities 1/3 and 2/3
    logp = processed_logprobs(torch.tensor([[0.0, math.log(4)]]), [Sampling(temperature=2.0)])
    assert logp.exp()[0].tolist() == pytest.approx([1 / 3, 2 / 3])


def test_temperature_zero_reports_the_distribution_at_one_and_no_filter():
    logp = processed_logprobs(logits(0.5, 0.3, 0.2), [Sampling(temperature=0, top_k=1, top_p=0.1)])
    assert logp.exp()[0].tolist() == pytest.approx([0.5, 0.3, 0.2])


def test_top_p_keeps_the_token_that_crosses_and_renormalises():
    # .5 alone is below .6, with .3 it is not: .5/.8 and .3/.8 are left
    logp = processed_logprobs(logits(0.2, 0.5, 0.3), [Sampling(top_p=0.6)])
    assert logp.exp()[0].tolist() == pytest.approx([0.0, 0.625, 0.375])


def test_top_p_keeps_at_least_one_token():
    assert keep_top_p(logits(0.2, 0.5, 0.3)[0], 1e-9).exp().tolist() == pytest.approx([0, 0.5, 0])


def test_top_k_keeps_exactly_k_of_equals():
    assert (keep_top_k(logits(0.25, 0.25, 0.25, 0.25)[0], 2) > -INF).tolist() == [True, True, False, False]


def test_top_k_comes_before_top_p():
    # top_k 2 leaves .5/.8 = .625 and .3/.8; top_p .6 then keeps the first alone, while of all three it would keep two
    logp = processed_logprobs(logits(0.5, 0.3, 0.2), [Sampling(top_k=2, top_p=0.6)])
    assert logp.exp()[0].tolist() == pytest.approx([1, 0, 0])


def test_each_row_follows_its_own_settings():
    rows = logits(0.5, 0.3, 0.2).repeat(2, 1)
    logp = processed_logprobs(rows, [Sampling(top_k=1), Sampling()])
    assert logp.exp().flatten().tolist() == pytest.approx([1, 0, 0, 0.5, 0.3, 0.2])


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 1), (0.2499, 1), (0.2501, 3), (0.9999, 3), (math.nextafter(1, 0), 3)]
)
def test_the_uniform_picks_the_token_whose_share_it_falls_in(uniform, token):
    # tokens 0, 2 and 4 have probability 0 and are never chosen, whatever the uniform
    assert choose(logits(0, 0.25, 0, 0.75, 0), [Sampling()], [uniform]).item() == token


def test_uniforms_spread_evenly_give_each_token_its_share():
    uniforms = [(i + 0.5) / 1000 for i in range(1000)]
    ids = choose(logits(0.1, 0.6, 0.3).repeat(1000, 1), [Sampling()] * 1000, uniforms)
    assert ids.bincount().tolist() == [100, 600, 300]


def test_greedy_rows_ignore_the_uniform_beside_sampled_ones():
    ids = choose(logits(0.4, 0.6).repeat(2, 1), [Sampling(temperature=0), Sampling()], [0.0, 0.0])
    assert ids.tolist() == [1, 0]


def test_choices_of_one_seed_and_neighbouring_seeds_have_seeds_of_their_own():
    assert len({choice_seed(seed, index) for seed in range(100) for index in range(32)}) == 3200
