import pytest
import torch

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, TrainingSample


def rl(advantage, behaviour, **fields):
    ids = list(range(1 + len(behaviour)))
    positions = list(range(1, len(ids)))
    return TrainingSample(
        stream=Stream.RL, token_ids=ids, positions=positions, weight=1.0, reward=advantage, advantage=advantage,
        behaviour=behaviour, **fields,
    )  # fmt: skip


def other(stream, num_tokens, *, advantage=0.0, weight=1.0, reference=0.0):
    return TrainingSample(
        stream=stream, token_ids=list(range(num_tokens + 1)), positions=list(range(1, num_tokens + 1)), weight=weight,
        reward=advantage, advantage=advantage, reference=reference,
    )  # fmt: skip


def total(terms):
    return sum(term.item() for term in terms.values())


def test_each_stream_is_divided_by_its_own_count():
    samples = [rl(1.0, [-1.0, -1.0]), other(Stream.CE, 1), other(Stream.KTO, 3, advantage=1.0)]
    logp = torch.tensor([-1.0, -1.0, -2.0, -0.5, -0.5, -0.5])
    terms = Objective.of(samples, UpdateConfig()).terms(logp, samples)
    # rl: -(1 + 1) / 2; ce: 2 / 1; kto: 1 - sigma(.1 * -1.5), with reference 0
    assert terms["rl"].item() == pytest.approx(-1.0)
    assert terms["ce"].item() == pytest.approx(2.0)
    assert terms["kto"].item() == pytest.approx(1 - torch.sigmoid(torch.tensor(-0.15)).item())
    assert terms["pull"].item() == 0.0


def test_splitting_a_step_into_micro_batches_does_not_change_its_loss():
    samples = [rl(0.5, [-1.0, -2.0, -0.3]), rl(-0.2, [-0.7]), other(Stream.KTO, 2, advantage=-1.0), other(Stream.CE, 2)]
    config = UpdateConfig(base_kl=0.1)
    samples[:2] = [
        TrainingSample(**{name: getattr(one, name) for name in one.__slots__} | {"base": [-1.0] * len(one.positions)})
        for one in samples[:2]
    ]
    objective = Objective.of(samples, config, kto_reference_point=0.3)
    logp = torch.tensor([-1.1, -1.9, -0.4, -0.6, -0.5, -0.4, -1.5, -0.9])
    whole = total(objective.terms(logp, samples))
    parts = total(objective.terms(logp[:3], samples[:1])) + total(objective.terms(logp[3:], samples[1:]))
    assert parts == pytest.approx(whole)


def test_a_sample_weight_scales_its_part_of_every_term():
    half, full = other(Stream.CE, 2, weight=0.5), other(Stream.CE, 2)
    logp = torch.tensor([-1.0, -3.0])
    terms = [Objective.of([one], UpdateConfig()).terms(logp, [one])["ce"].item() for one in (half, full)]
    assert terms == [1.0, 2.0]


def test_terms_that_are_switched_off_are_not_there():
    one = rl(1.0, [-1.0])
    objective = Objective.of([one], UpdateConfig(behaviour_pull=0.0))
    assert set(objective.terms(torch.tensor([-1.0]), [one])) == {"rl"}
