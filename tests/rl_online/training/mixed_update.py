"""An update with something for each stream: rewards near the base, single preferences, demonstrations."""

from dataclasses import replace

import torch
from safetensors.torch import load_file

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.optimizer import TENSORS, join_master
from rl_online.training.state import state_folder
from tests.rl_online.training.tiny_update import make_request, make_samples, run

CONFIG = UpdateConfig(
    learning_rate=1e-4, minibatch_size=10, micro_batch_tokens=24, base_kl=0.1, min_ess=0.0, snapshot_steps=1
)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Left(BaseException):
    """Caught by nobody, as a kill is."""


def make_mixed(root, *, dtype=torch.float32):
    liked = [replace(one, row={"turn": "t", "kind": "kto"}) for one in make_samples(8, 1, behaviour_logprobs=None)]
    shown = [replace(one, row={"turn": "t", "kind": "ce"}) for one in make_samples(7, 2)]
    request = make_request(root, [*make_samples(15), *liked, *shown], dtype=dtype, config=CONFIG)
    return replace(request, base_folder=request.parent_folder)


def run_mixed(request, **options):
    """The losses of its steps."""
    seen = []
    run(request, on_progress=seen.append, **options)
    return [one.metrics["loss"] for one in seen if one.metrics]


def leave_after(request, *, step, **options):
    """As if it had been killed right after the snapshot of that step."""
    left = [step]

    def crash(name):
        left[0] -= name == "update.after_snapshot"
        if not left[0]:
            raise Left

    try:
        run(request, crash=crash, **options)
    except Left:
        return
    raise AssertionError(f"there was no snapshot after step {step}")


def masters_of(request):
    """Every weight as the optimizer holds it, in fp32, and its moments."""
    weights = load_file(request.out_folder / "model.safetensors")
    state = load_file(state_folder(request.out_folder) / TENSORS)
    masters = {
        name: join_master(weight, state.pop(f"low.{name}")) if f"low.{name}" in state else weight
        for name, weight in weights.items()
    }
    return masters | state


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=0, msg=name)
