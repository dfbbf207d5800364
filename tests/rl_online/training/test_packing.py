"""Packed rows: no padding, and the loss and gradient of the padded ones."""

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from rl_online.policy.load import load_policy
from rl_online.policy.logprobs import can_pack
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.local import LocalTrainer
from rl_online.training.microbatch import in_given_order, micro_batches, packed_batches, padding_share
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, TrainingSample


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return build_tiny_policy(tmp_path_factory.mktemp("tiny"), [f"w{n}" for n in range(30)], dtype=torch.float32)


def of_length(length, pair=None, **fields):
    ids = [2 + (length * 7 + step) % 30 for step in range(length)]
    positions = list(range(max(1, length - 3), length))
    return TrainingSample(token_ids=ids, positions=positions, weights={Stream.CE: 1.0}, reward=0.0, pair=pair, **fields)


def test_packed_loss_and_gradient_are_the_padded_ones_to_a_millionth(policy):
    samples = [of_length(length, temperature=0.7 + 0.1 * (length % 3)) for length in (5, 9, 3, 14, 7)]
    seen = []
    for packing in (False, True):
        config = UpdateConfig(packing=packing, micro_batch_tokens=24)
        trainer = LocalTrainer(policy, config=config, device="cpu", seed=0)
        found = trainer.forward_backward(samples, Objective.of(samples, config))
        seen.append((found, trainer.optimizer.gradients))
    (padded, gradients), (packed, packed_gradients) = seen
    assert packed.losses["ce"] == pytest.approx(padded.losses["ce"], abs=1e-6)
    assert (packed.num_passes, packed.padding_share) == (2, 0.0) and padded.padding_share > 0
    for name, gradient in gradients.items():
        torch.testing.assert_close(packed_gradients[name], gradient, atol=1e-6, rtol=0)


def test_a_model_whose_state_runs_on_into_the_next_sequence_cannot_pack(policy):
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, state_size=4)
    assert not can_pack(MambaForCausalLM(config).eval())
    assert can_pack(load_policy(policy))


def test_sorting_by_length_leaves_less_padding_than_the_given_order():
    samples = [of_length(length) for length in (10, 2, 10, 2)]
    assert padding_share(samples, in_given_order(samples, 20)) == pytest.approx(0.4)
    assert padding_share(samples, micro_batches(samples, 20)) == 0.0


def test_packing_fills_the_gaps_that_longer_samples_leave():
    samples = [of_length(length) for length in (6, 3, 8, 2, 4)]
    assert packed_batches(samples, 10) == [[2, 3], [0, 4], [1]]


@pytest.mark.parametrize("cut", [micro_batches, packed_batches])
def test_the_answers_of_a_pair_share_a_pass(cut):
    samples = [of_length(9, pair=0), of_length(2), of_length(2, pair=0), of_length(9)]
    groups = cut(samples, 11)
    assert any({0, 2} <= set(group) for group in groups)
    assert sorted(index for group in groups for index in group) == [0, 1, 2, 3]
