"""A policy that was taught a task, and the same policy over-trained on eight problems of it: what a gate must hold.

The task: `first`, `second` or `third` of three words; the answer is that word. Held-out problems are combinations never
trained on. For tests of the gate: `build(root)` makes both checkpoints through real updates, `answers` asks them.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import torch

from rl_online.policy.load import load_policy, load_tokenizer
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.batch import Sample, seal_batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.update import UpdateRequest, run_update
from rl_online.weights.publish import adopt_folder

FAMILIES = ["first", "second", "third"]
ITEMS = [f"w{number}" for number in range(10)]
TAUGHT, HELD_OUT, OVERTRAINED_ON = 1500, 200, 8
TEACH = UpdateConfig(learning_rate=3e-3, minibatch_size=50, epochs=3, micro_batch_tokens=4096)
OVERTRAIN = UpdateConfig(learning_rate=1e-2, minibatch_size=8, epochs=60, micro_batch_tokens=4096)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One problem of the toy task."""

    family: str
    prompt: str
    answer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Overtrained:
    """Two checkpoints of one policy, and the problems that tell them apart."""

    taught: Path  # version 2: good on held-out problems
    overtrained: Path  # version 3: perfect on `trained_on`, worse on `held_out`
    trained_on: list[Problem]
    held_out: list[Problem]


def build(root: Path, *, seed: int = 0) -> Overtrained:
    """Both checkpoints under `root`, in some seconds; the same seed gives the same bits."""
    problems = _problems(seed)
    taught, held_out = problems[:TAUGHT], problems[TAUGHT : TAUGHT + HELD_OUT]
    trained_on = problems[TAUGHT + HELD_OUT :][:OVERTRAINED_ON]
    source = build_tiny_policy(root / "source", FAMILIES + ITEMS, dtype=torch.float32, seed=seed)
    adopt_folder(source, root / "policy" / "v000001", policy="toy", version=1)
    _update(root, 2, taught, TEACH)
    _update(root, 3, trained_on, OVERTRAIN)
    return Overtrained(
        taught=root / "policy" / "v000002",
        overtrained=root / "policy" / "v000003",
        trained_on=trained_on,
        held_out=held_out,
    )


def answers(folder: Path, problems: list[Problem]) -> list[str]:
    """The greedy answer of the checkpoint in `folder` to each problem."""
    model, tokenizer = load_policy(folder), load_tokenizer(folder)
    ids = torch.tensor([tokenizer(problem.prompt)["input_ids"] for problem in problems])
    with torch.no_grad():
        best = model(input_ids=ids).logits[:, -1].argmax(-1)
    return [tokenizer.decode(token) for token in best]


def scores(folder: Path, problems: list[Problem]) -> list[float]:
    """1 where the greedy answer is right, else 0."""
    given = answers(folder, problems)
    return [float(answer == problem.answer) for answer, problem in zip(given, problems, strict=True)]


def _problems(seed: int) -> list[Problem]:
    everything = [
        Problem(family=family, prompt=f"{family} {a} {b} {c}", answer=(a, b, c)[place])
        for place, family in enumerate(FAMILIES)
        for a in ITEMS
        for b in ITEMS
        for c in ITEMS
    ]
    random.Random(seed).shuffle(everything)
    return everything


def _update(root: Path, version: int, problems: list[Problem], config: UpdateConfig) -> None:
    policy = root / "policy"
    tokenizer = load_tokenizer(policy / "v000001")
    samples = [
        _demonstration(tokenizer(one.prompt)["input_ids"], tokenizer(one.answer)["input_ids"]) for one in problems
    ]
    request = UpdateRequest(
        parent_folder=policy / f"v{version - 1:06d}",
        batch_folder=seal_batch(samples, root / "batches").folder,
        base_folder=None,
        out_folder=policy / f"v{version:06d}",
        deltas_root=policy / "deltas",
        policy="toy",
        version=version,
        parent_version=version - 1,
        seed=0,
        device="cpu",
        config=config,
        reward_spec="",
        code_version="test",
    )
    run_update(request, on_progress=lambda progress: None, is_cancelled=lambda: False, crash=lambda name: None)


def _demonstration(prompt: list[int], answer: list[int]) -> Sample:
    return Sample(
        token_ids=prompt + answer,
        prompt_length=len(prompt),
        mask=[0] * len(prompt) + [1] * len(answer),
        behaviour_logprobs=None,
        reward=1.0,
        baseline=0.0,
        versions=[-1] * (len(prompt) + len(answer)),
        row={"kind": "ce"},
    )
