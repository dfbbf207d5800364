"""What every Trainer must do. A new implementation joins by adding itself to `IMPLEMENTATIONS`."""

from dataclasses import replace
from itertools import chain

import pytest
import torch

from rl_online.policy.load import load_policy
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.local import LocalTrainer
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, TrainingSample
from rl_online.weights.tensors import read_tensors

CONFIG = UpdateConfig(learning_rate=1e-2, micro_batch_tokens=12)
SAMPLES = [
    TrainingSample(token_ids=[2, 3, 4, 5], positions=[2, 3], weights={Stream.CE: 1.0}, reward=0.0),
    TrainingSample(token_ids=[6, 7, 8], positions=[1, 2], weights={Stream.CE: 1.0}, reward=0.0),
    TrainingSample(token_ids=[9, 2, 3, 4, 5, 0], positions=[5], weights={Stream.CE: 1.0}, reward=0.0),
]
IMPLEMENTATIONS = {"local": LocalTrainer}


@pytest.fixture(params=IMPLEMENTATIONS)
def make(request, tmp_path):
    build_tiny_policy(tmp_path / "parent", [f"w{i}" for i in range(10)], dtype=torch.bfloat16)

    def open_trainer(folder=tmp_path / "parent", state=None, config=CONFIG):
        return IMPLEMENTATIONS[request.param](folder, config=config, device="cpu", seed=0, state=state)

    return open_trainer


def learn(trainer, times=1):
    for _ in range(times):
        seen = trainer.forward_backward(SAMPLES, Objective.of(SAMPLES, CONFIG))
        trainer.optim_step()
    return seen


def test_a_pass_reports_the_loss_and_the_log_probabilities_it_saw(make):
    trainer = make()
    before = trainer.logprobs(SAMPLES)
    seen = trainer.forward_backward(SAMPLES, Objective.of(SAMPLES, CONFIG))
    assert [len(values) for values in seen.logprobs] == [2, 2, 1]
    assert list(chain(*seen.logprobs)) == pytest.approx(list(chain(*before)), abs=0.02)
    assert seen.losses == {"ce": pytest.approx(-sum(map(sum, seen.logprobs)) / 5, rel=1e-5)}


def test_steps_lower_the_loss(make):
    trainer = make()
    first = learn(trainer).losses["ce"]
    assert learn(trainer, 10).losses["ce"] < first / 2
    assert trainer.optimizer_step == 11


def test_a_pass_changes_nothing_until_the_step(make):
    trainer = make()
    before = trainer.logprobs(SAMPLES)
    trainer.forward_backward(SAMPLES, Objective.of(SAMPLES, CONFIG))
    assert trainer.logprobs(SAMPLES) == before
    report = trainer.optim_step()
    assert report.is_applied and report.grad_norm > 0
    assert trainer.logprobs(SAMPLES) != before


def test_a_discarded_gradient_leaves_weights_and_count(make):
    trainer = make()
    before = trainer.logprobs(SAMPLES)
    trainer.forward_backward(SAMPLES, Objective.of(SAMPLES, CONFIG))
    assert not trainer.optim_step(discard=True).is_applied
    assert (trainer.logprobs(SAMPLES), trainer.optimizer_step) == (before, 0)


def test_passes_add_up_whether_given_together_or_apart(make):
    together, apart = make(), make()
    objective = Objective.of(SAMPLES, CONFIG)
    together.forward_backward(SAMPLES, objective)
    for sample in SAMPLES:
        apart.forward_backward([sample], objective)
    assert apart.optim_step().grad_norm == pytest.approx(together.optim_step().grad_norm, rel=0.02)


def test_saved_weights_load_as_they_were(make, tmp_path):
    trainer = make()
    learn(trainer, 3)
    folder = tmp_path / "saved"
    folder.mkdir()
    trainer.save_weights(folder)
    assert make(folder).logprobs(SAMPLES) == trainer.logprobs(SAMPLES)
    assert list(read_tensors(folder)) == list(read_tensors(tmp_path / "parent"))
    assert load_policy(folder).dtype is torch.bfloat16


def test_a_trainer_goes_on_from_saved_weights_and_state_to_the_same_bits(make, tmp_path):
    straight = make()
    learn(straight, 2)
    for name, save in (("weights", straight.save_weights), ("state", straight.save_state)):
        (tmp_path / name).mkdir()
        save(tmp_path / name)
    learn(straight, 2)
    resumed = make(tmp_path / "weights", tmp_path / "state")
    learn(resumed, 2)
    assert resumed.logprobs(SAMPLES) == straight.logprobs(SAMPLES)
    draws = [one.sample([[2, 3]], max_new_tokens=8, temperature=1.0) for one in (straight, resumed)]
    assert draws[0] == draws[1]


def test_sampling_returns_tokens_with_their_log_probabilities(make):
    (drawn,) = make().sample([[2, 3, 4]], max_new_tokens=4, temperature=1.0)
    assert 1 <= len(drawn.token_ids) <= 4
    assert len(drawn.logprobs) == len(drawn.token_ids) and all(value <= 0 for value in drawn.logprobs)


def test_greedy_sampling_learns_what_it_is_taught(make):
    trainer = make()
    learn(trainer, 60)
    (drawn,) = trainer.sample([[2, 3]], max_new_tokens=2, temperature=0)
    assert drawn.token_ids == [4, 5]


def test_recomputing_layers_gives_the_same_bits(make):
    plain, recomputing = make(), make(config=replace(CONFIG, gradient_checkpointing=True))
    calls = []
    recomputing.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    learn(plain), learn(recomputing)
    assert recomputing.logprobs(SAMPLES) == plain.logprobs(SAMPLES)
    assert len(calls) == 2 * 2 + 2  # of two passes each twice, and two that only score


def test_a_step_at_a_share_of_the_learning_rate_moves_by_that_share(make):
    whole, half = make(), make()
    start = {name: master.clone() for name, master in whole.optimizer.masters.items()}
    for trainer, scale in ((whole, 1.0), (half, 0.5)):
        trainer.forward_backward(SAMPLES, Objective.of(SAMPLES, CONFIG))
        trainer.optim_step(lr_scale=scale)
    name = "model.layers.0.mlp.up_proj.weight"
    moved = [trainer.optimizer.masters[name] - start[name] for trainer in (whole, half)]
    torch.testing.assert_close(2 * moved[1], moved[0], atol=1e-6, rtol=1e-3)
