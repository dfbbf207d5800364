"""Expectations over a six-way categorical are summed exactly, so estimators are judged without sampling noise."""

import pytest
import torch

from rl_online.algorithms.base_kl import (
    kl_base_to_policy_k3,
    kl_policy_to_base_k2,
    kl_policy_to_base_ratio_k3,
    kl_reward,
)
from rl_online.algorithms.policy_gradient import reinforce

BASE = torch.tensor([0.30, 0.25, 0.20, 0.15, 0.07, 0.03], dtype=torch.float64).log()
START = torch.tensor([1.2, -0.3, 0.4, 0.1, -1.0, 0.8], dtype=torch.float64)
OTHER = torch.tensor([0.1, 0.2, 0.1, 0.3, 0.2, 0.1], dtype=torch.float64)


def true_kl():
    logits = START.clone().requires_grad_()
    logp = logits.log_softmax(-1)
    value = (logp.exp() * (logp - BASE)).sum()
    value.backward()
    return value.item(), logits.grad


def expectation(term, sampler):
    """Expected value and gradient of `term` when `sampler` draws the tokens: its probability is each token's weight."""
    logits = START.clone().requires_grad_()
    value = term(logits.log_softmax(-1), sampler)
    value.backward()
    return value.item(), logits.grad


def ratio_k3(logp, sampler):
    return kl_policy_to_base_ratio_k3(logp, sampler.log(), BASE, sampler, denominator=1)


@pytest.mark.parametrize("sampler", [START.softmax(-1), OTHER], ids=["on-policy", "off-policy"])
def test_ratio_k3_has_the_kls_value_and_gradient_whoever_sampled(sampler):
    value, gradient = expectation(ratio_k3, sampler)
    exact_value, exact_gradient = true_kl()
    assert value == pytest.approx(exact_value, abs=1e-12)
    assert torch.allclose(gradient, exact_gradient, atol=1e-12)


def test_k2_has_the_kls_gradient_on_policy():
    sampler = START.softmax(-1)
    _, gradient = expectation(lambda logp, w: kl_policy_to_base_k2(logp, BASE, w, denominator=1), sampler)
    assert torch.allclose(gradient, true_kl()[1], atol=1e-12)


def test_both_are_zero_without_gradient_where_policy_and_base_agree():
    logp = BASE.clone().requires_grad_()
    ones = torch.ones(6)
    terms = kl_policy_to_base_k2(logp, BASE, ones, denominator=6)
    terms = terms + kl_policy_to_base_ratio_k3(logp, BASE, BASE, ones, denominator=6)
    terms.backward()
    assert terms.item() == 0.0
    assert logp.grad.abs().max().item() == 0.0


def test_k2_of_one_token_is_half_the_squared_gap():
    value = kl_policy_to_base_k2(torch.tensor([-1.0]), torch.tensor([-1.4]), torch.ones(1), denominator=2)
    assert value.item() == pytest.approx(0.04)


def distance(gradient, exact):
    return ((gradient - exact).norm() / exact.norm()).item()


def bare_k3(logp, sampler):
    return kl_base_to_policy_k3(logp, BASE, sampler, denominator=1)


def k1(logp, sampler):
    return (sampler * (logp - BASE)).sum()


def k2(logp, sampler):
    return kl_policy_to_base_k2(logp, BASE, sampler, denominator=1)


def k1_as_a_reward(logp, sampler):
    reward = kl_reward(sampler.log(), BASE, coefficient=1.0)
    return reinforce(logp, sampler.log(), reward, sampler, torch.ones(6).bool(), denominator=1)


@pytest.mark.parametrize(
    ("term", "value", "gradient_error"),
    [(k1, 0.38954, 1.0), (k2, 0.59213, 0.0), (bare_k3, 0.38954, 0.56320), (ratio_k3, 0.38954, 0.0)],
)
def test_the_table_of_estimators_by_exact_enumeration(term, value, gradient_error):
    # the KL itself is .38954; the documented table holds these numbers
    found, gradient = expectation(term, START.softmax(-1))
    assert found == pytest.approx(value, abs=5e-6)
    assert distance(gradient, true_kl()[1]) == pytest.approx(gradient_error, abs=5e-6)


def test_k1_in_a_loss_has_no_gradient_at_all():
    assert expectation(k1, START.softmax(-1))[1].abs().max().item() < 1e-15


def test_k1_in_the_reward_has_the_kls_gradient():
    _, gradient = expectation(k1_as_a_reward, START.softmax(-1))
    assert torch.allclose(gradient, true_kl()[1], atol=1e-12)
    assert not kl_reward(BASE.clone().requires_grad_(), BASE).requires_grad


def test_bare_k3_has_the_gradient_of_the_other_kl():
    logits = START.clone().requires_grad_()
    (BASE.exp() * (BASE - logits.log_softmax(-1))).sum().backward()
    assert torch.allclose(expectation(bare_k3, START.softmax(-1))[1], logits.grad, atol=1e-15)
