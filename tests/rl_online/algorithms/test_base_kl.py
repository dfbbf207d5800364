"""Expectations over a six-way categorical are summed exactly, so estimators are judged without sampling noise."""

import pytest
import torch

from rl_online.algorithms.base_kl import kl_policy_to_base_k2, kl_policy_to_base_ratio_k3

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
