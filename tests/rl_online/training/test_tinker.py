"""Against the real SDK's types, with a client in this process instead of the service: nothing is sent anywhere."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tinker import types

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate, UpdateFailed
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.tinker_requests import adam_params, loss_requests, refuse_for_tinker
from rl_online.training.tinker_trainer import TinkerTrainer

REINFORCE = UpdateConfig(correction="none", behaviour_pull=0.0)
PPO = UpdateConfig(policy_loss="ppo_clip", correction="none", dual_clip=0.0)
CISPO = UpdateConfig(policy_loss="cispo", correction="none", ratio_cap=1.5)
ANSWER = TrainingSample(token_ids=[5, 6, 7, 8], positions=[2, 3], weights={Stream.RL: 2.0}, reward=1.0,
                        advantage=0.5, behaviour=[-0.5, -1.5], proximal=[-0.7, -1.0])  # fmt: skip
OTHER = replace(ANSWER, token_ids=[9, 3, 4], positions=[1, 2], advantage=[-0.25, 0.75], weights={Stream.RL: 1.0})
SHOWN = TrainingSample(token_ids=[5, 6, 7], positions=[2], weights={Stream.CE: 1.0}, reward=0.0)


def test_a_demonstration_is_shifted_by_one_and_weighs_by_our_count():
    samples = [SHOWN, replace(SHOWN, token_ids=[1, 2, 3, 4], positions=[1, 2, 3], weights={Stream.CE: [1.0, 0.0, 0.5]})]
    (request,) = loss_requests(samples, Objective.of(samples, replace(REINFORCE, ce_weight=2.0)))
    assert (request.loss_fn, request.loss_fn_config, request.places) == ("cross_entropy", None, [0, 1])
    first, second = request.data
    assert isinstance(first, types.Datum) and first.model_input == types.ModelInput.from_ints([5, 6])
    assert first.loss_fn_inputs["target_tokens"].tolist() == [6, 7]
    assert first.loss_fn_inputs["weights"].tolist() == [0.0, 0.5]  # 2 over the 4 trained tokens of the step
    assert second.loss_fn_inputs["weights"].tolist() == [0.5, 0.0, 0.25]
    assert (second.loss_fn_inputs["target_tokens"].dtype, second.loss_fn_inputs["weights"].dtype) == (
        "int64",
        "float32",
    )


def test_an_answer_carries_its_samplers_logprobs_and_its_advantage_over_our_count():
    (request,) = loss_requests([ANSWER], Objective.of([ANSWER], REINFORCE))
    inputs = request.data[0].loss_fn_inputs
    assert request.loss_fn == "importance_sampling"
    assert inputs["logprobs"].tolist() == [0.0, -0.5, -1.5]
    assert inputs["advantages"].tolist() == [0.0, 0.5, 0.5]  # advantage .5, weight 2, two tokens
    (request,) = loss_requests([ANSWER], Objective.of([ANSWER], PPO))
    assert request.data[0].loss_fn_inputs["logprobs"].tolist() == pytest.approx([0.0, -0.7, -1.0])


def theirs(request, logprobs):
    """The loss of the SDK's documentation: a sum over all tokens of all sequences."""
    total = torch.tensor(0.0)
    for datum, logp_T in zip(request.data, logprobs, strict=True):
        inputs = {name: tensor.to_torch() for name, tensor in datum.loss_fn_inputs.items()}
        if request.loss_fn == "cross_entropy":
            total += -(inputs["weights"] * logp_T).sum()
            continue
        ratio_T = (logp_T - inputs["logprobs"]).exp()
        if request.loss_fn == "importance_sampling":
            total += -(ratio_T * inputs["advantages"]).sum()
            continue
        bounds = [request.loss_fn_config[f"clip_{end}_threshold"] for end in ("low", "high")]
        if request.loss_fn == "cispo":
            total += -(ratio_T.clamp(*bounds) * inputs["advantages"] * logp_T).sum()
        else:
            gains = (ratio_T * inputs["advantages"], ratio_T.clamp(*bounds) * inputs["advantages"])
            total += -torch.minimum(*gains).sum()
    return total


@pytest.mark.parametrize(
    "config", [REINFORCE, PPO, replace(PPO, policy_loss="dapo"), CISPO], ids=lambda c: c.policy_loss
)
def test_the_losses_asked_for_add_up_to_ours(config):
    samples = [ANSWER, SHOWN, OTHER]
    objective = Objective.of(samples, config)
    draw = torch.Generator().manual_seed(0)
    logprobs = [-torch.rand(len(one) - 1, generator=draw) * 2 for one in samples]
    requests = loss_requests(samples, objective)
    found = sum(theirs(one, [logprobs[place] for place in one.places]) for one in requests)
    trained = [logp_T[torch.tensor(one.positions) - 1] for one, logp_T in zip(samples, logprobs, strict=True)]
    expected = sum(objective.terms(torch.cat(trained), samples).values())
    assert float(found) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"policy_loss": "gspo"}, "policy_loss is 'gspo'"),
        ({"policy_loss": "dro"}, "policy_loss is 'dro'"),
        ({"correction": "dppo"}, "correction is 'dppo', which tinker cannot express; set it to 'none'"),
        ({"behaviour_pull": 1e-3}, "behaviour_pull"),
        ({"policy_loss": "ppo_clip", "dual_clip": 3.0}, "dual_clip is 3.0"),
        ({"base_kl": 0.1}, "base_kl"),
        ({"distill_weight": 1.0}, "distill_weight"),
        ({"optimizer": "muon"}, "optimizer is 'muon'"),
        ({"loss_norm": "sequences"}, "choose tokens or constant"),
    ],
)
def test_what_tinker_has_no_loss_for_is_refused_by_name(changes, message):
    with pytest.raises(ContradictoryUpdate, match=message):
        refuse_for_tinker(replace(REINFORCE, **changes))


def test_samples_that_tinker_has_no_loss_for_are_refused():
    preferred = replace(ANSWER, weights={Stream.PREF: 1.0})
    with pytest.raises(ContradictoryUpdate, match=r"feeds \[<Stream.PREF"):
        loss_requests([preferred], Objective.of([preferred], REINFORCE))
    warm = replace(ANSWER, temperature=0.7)
    with pytest.raises(ContradictoryUpdate, match=r"temperature 0\.7; tinker computes at 1"):
        loss_requests([warm], Objective.of([warm], REINFORCE))


def test_the_step_takes_our_settings():
    params = adam_params(UpdateConfig(learning_rate=2e-5, weight_decay=0.1), lr_scale=0.5)
    assert isinstance(params, types.AdamParams)
    assert (params.learning_rate, params.beta2, params.eps, params.weight_decay) == (1e-5, 0.95, 1e-8, 0.1)
    assert params.grad_clip_norm == 1.0


class Client:
    """Takes and gives the SDK's types as its TrainingClient does; every log-probability is -1."""

    def __init__(self):
        self.asked = []

    def forward_backward(self, data, loss_fn, loss_fn_config=None):
        types.ForwardBackwardInput(data=data, loss_fn=loss_fn, loss_fn_config=loss_fn_config)
        self.asked.append(loss_fn)
        ones = [types.TensorData.from_torch(-torch.ones(datum.model_input.length)) for datum in data]
        outputs = [{"logprobs": one} for one in ones]
        return done(types.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=outputs))

    forward = forward_backward

    def optim_step(self, params):
        types.OptimStepRequest(optim_params=params, model_id="m")
        return done(types.OptimStepResponse(metrics={"grad_norm": 2.0}))

    def save_state(self, name):
        return done(types.SaveWeightsResponse(path=f"tinker://run/weights/{name}"))

    def load_state_with_optimizer(self, path):
        self.asked.append(path)
        return done(types.LoadWeightsResponse(path=path))


def done(value):
    return SimpleNamespace(result=lambda: value)


def test_the_verbs_of_a_trainer_become_calls_of_the_client(tmp_path):
    client = Client()
    trainer = TinkerTrainer(client, config=REINFORCE, name="support")
    samples = [SHOWN, ANSWER]
    seen = trainer.forward_backward(samples, Objective.of(samples, REINFORCE))
    assert (client.asked, seen.logprobs) == (["cross_entropy", "importance_sampling"], [[-1.0], [-1.0, -1.0]])
    assert seen.losses["ce"] == 1.0
    assert trainer.optim_step(lr_scale=0.5).grad_norm == 2.0
    assert trainer.logprobs([ANSWER]) == [[-1.0, -1.0]]
    trainer.save_snapshot(tmp_path)
    again = TinkerTrainer(client, config=REINFORCE, name="support")
    again.load_snapshot(tmp_path)
    assert client.asked[-1].startswith("tinker://run/weights/support-000001-") and again.optimizer_step == 1


def test_what_the_service_cannot_do_is_said(tmp_path):
    trainer = TinkerTrainer(Client(), config=REINFORCE, name="support")
    with pytest.raises(UpdateFailed, match="cannot drop a gradient"):
        trainer.optim_step(discard=True)
    with pytest.raises(UpdateFailed, match="stay with its service"):
        trainer.save_weights(tmp_path)
