"""What only looks better is held: a policy that became perfect on what it trained on and worse on what it did not."""

from statistics import fmean

import pytest
import torch

from rl_online.gate.decision import Kind, decide
from rl_online.gate.evidence import Arm, Evidence, Half
from rl_online.gate.limits import Limits
from tests.rl_online.training.overtrained import Problem, build, scores


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    torch.set_num_threads(1)
    return build(tmp_path_factory.mktemp("overtrained"))


def half(name: str, problems: list[Problem], candidate, serving) -> Half:
    keys = [problem.prompt for problem in problems]
    return Half(
        name=name,
        families={problem.prompt: problem.family for problem in problems},
        candidate=dict(zip(keys, scores(candidate, problems), strict=True)),
        baselines=(
            Arm(role="serving", checkpoint="toy@2", scores=dict(zip(keys, scores(serving, problems), strict=True))),
        ),
    )


def evidence(toy, candidate) -> Evidence:
    halves = (("one half", toy.held_out[:100]), ("other half", toy.held_out[100:]))
    return Evidence(
        candidate="toy@3", halves=tuple(half(name, problems, candidate, toy.taught) for name, problems in halves)
    )


def test_the_gate_holds_a_policy_that_learnt_eight_problems_by_heart(toy):
    taught, overtrained = (fmean(scores(folder, toy.held_out)) for folder in (toy.taught, toy.overtrained))
    assert taught >= 0.6
    assert fmean(scores(toy.overtrained, toy.trained_on)) >= 0.95
    assert taught - overtrained >= 0.15

    decision = decide(evidence(toy, toy.overtrained), Limits())

    assert decision.kind is Kind.HOLD
    assert any("half" in reason for reason in decision.reasons)


def test_the_same_gate_lets_an_unchanged_policy_pass(toy):
    assert decide(evidence(toy, toy.taught), Limits()).kind is Kind.PROMOTE
