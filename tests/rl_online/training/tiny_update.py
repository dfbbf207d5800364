"""A whole update on a two-layer policy, small enough to run dozens of times in a test file."""

import os
import random
from dataclasses import replace
from pathlib import Path

import torch

from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.batch import Sample, seal_batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.update import UpdateRequest, run_update
from rl_online.weights.publish import adopt_folder

WORDS = [f"w{number}" for number in range(30)]
CONFIG = UpdateConfig(learning_rate=1e-3, minibatch_size=8, micro_batch_tokens=64)


def make_sample(rng, **changes):
    prompt = [rng.randrange(2, 32) for _ in range(rng.randrange(2, 8))]
    completion = [rng.randrange(2, 32) for _ in range(rng.randrange(1, 5))] + [0]
    zeros, ones = [0] * len(prompt), [1] * len(completion)
    fields = {
        "token_ids": prompt + completion,
        "prompt_length": len(prompt),
        "mask": zeros + ones,
        "behaviour_logprobs": [0.0] * len(prompt) + [-3.5 + 0.1 * rng.random() for _ in completion],
        "reward": rng.choice([0.75, -0.25]),
        "baseline": 0.1,
        "versions": [-1] * len(prompt) + [1] * len(completion),
        "row": {"turn": str(rng.random()), "kind": "rl"},
    }
    return Sample(**(fields | changes))


def make_samples(count=24, seed=0, **changes):
    rng = random.Random(seed)
    return [make_sample(rng, **changes) for _ in range(count)]


def make_request(root: Path, samples=None, *, dtype=torch.bfloat16, **changes) -> UpdateRequest:
    source = root / "source"
    if not source.exists():
        build_tiny_policy(source, WORDS, dtype=dtype)
    adopt_folder(source, root / "policy" / "v000001", policy="p", version=1)
    fields = {
        "parent_folder": root / "policy" / "v000001",
        "batch_folder": seal_batch(samples or make_samples(), root / "batches").folder,
        "base_folder": None,
        "out_folder": root / "policy" / "v000002",
        "deltas_root": root / "policy" / "deltas",
        "policy": "p",
        "version": 2,
        "parent_version": 1,
        "seed": 7,
        "device": os.environ.get("STROP_DEVICE", "cpu"),  # cuda: every test of an update on a GPU
        "config": CONFIG,
        "reward_spec": "spec-1",
        "code_version": "test",
    }
    return UpdateRequest(**(fields | changes))


def following(request: UpdateRequest, samples) -> UpdateRequest:
    """The next update of the same line."""
    out = request.out_folder
    return replace(
        request,
        parent_folder=out,
        batch_folder=seal_batch(samples, request.batch_folder.parent).folder,
        out_folder=out.with_name(f"v{request.version + 1:06d}"),
        version=request.version + 1,
        parent_version=request.version,
    )


def run(request, **hooks):
    quiet = {"on_progress": lambda progress: None, "is_cancelled": lambda: False, "crash": lambda name: None}
    return run_update(request, **(quiet | hooks))


def state_bytes(request):
    folder = request.out_folder.parent / "train" / request.out_folder.name
    return {path.name: path.read_bytes() for path in folder.iterdir()}
