"""What befalls an update in a process of its own: it is killed, its disk is full, its memory runs out.

`happen` ends the process for a kill. What was seen goes into `root/reached`.
"""

import json
import os
import re
import resource
from dataclasses import replace
from pathlib import Path

import torch

from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.local import LocalTrainer
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, TrainingSample
from tests.rl_online.training.tiny_update import CONFIG, WORDS, make_request, run

SMALL_FILE = 20_000  # bytes: more than any JSON of an update, less than its weights
LITTLE = 120 << 20  # bytes more than are in use: half of the long samples fit


def happen(name: str, root: Path) -> None:
    if name == "full_disk":
        full_disk(root)
    elif name == "little_memory":
        little_memory(root)
    else:
        killed_at(name, root)


def killed_at(name: str, root: Path) -> None:
    """`update.mid_save`, or `update.after_snapshot#2` for the second time it is passed."""
    point, _, times = name.partition("#")
    left = int(times or 1)

    def crash(passed: str) -> None:
        nonlocal left
        left -= passed == point
        if left == 0:
            (root / "reached").write_text(name)
            os._exit(137)

    run(make_request(root, config=replace(CONFIG, snapshot_steps=1)), crash=crash)


def full_disk(root: Path) -> None:
    """After the second snapshot no file may grow any more."""
    left = 2

    def fill(passed: str) -> None:
        nonlocal left
        left -= passed == "update.after_snapshot"
        if left == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_FILE, SMALL_FILE))

    try:
        run(make_request(root, config=replace(CONFIG, snapshot_steps=1)), crash=fill)
    except Exception as error:
        (root / "reached").write_text(f"{type(error).__name__}: {error}")


def little_memory(root: Path) -> None:
    """One gradient with memory to spare and one without, written as two JSON objects."""
    policy = build_tiny_policy(root / "tiny", WORDS, dtype=torch.float32)
    config = UpdateConfig(micro_batch_tokens=8192)
    samples = [
        TrainingSample(
            token_ids=[2 + (seed + step) % 30 for step in range(250)],
            positions=list(range(100, 250)),
            weights={Stream.CE: 1.0},
            reward=0.0,
        )
        for seed in range(32)
    ]
    limits = resource.getrlimit(resource.RLIMIT_AS)
    found = []
    for is_little in (True, False):  # in this order nothing freed before is left to be used again
        trainer = LocalTrainer(policy, config=config, device="cpu", seed=0)
        in_use = int(re.search(r"^VmSize:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)[1]) * 1024
        resource.setrlimit(resource.RLIMIT_AS, (in_use + LITTLE, limits[1]) if is_little else limits)
        seen = trainer.forward_backward(samples, Objective.of(samples, config))
        norm = trainer.optim_step().grad_norm
        found.append({"loss": seen.losses["ce"], "grad_norm": norm, "max_tokens": trainer.layout.max_tokens})
    (root / "reached").write_text(json.dumps(found))
