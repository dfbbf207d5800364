"""The update and the engine's forward on a GPU. Skipped where there is none; nothing else about it differs."""

from dataclasses import replace

import pytest
import torch

from rl_online.weights.manifest import verify_folder
from tests.rl_online.training.tiny_update import make_request, make_samples, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]


def test_an_update_on_the_gpu_is_a_checkpoint_anyone_can_load(tmp_path):
    request = replace(make_request(tmp_path), device="cuda")
    result = run(request)
    assert verify_folder(request.out_folder).tree_digest == result.tree_digest


def test_the_gpu_learns_what_the_cpu_learns(tmp_path):
    """Same batch, fp32: the losses of the first step agree, so the mathematics is the same one."""
    samples = make_samples()
    losses = {}
    for device in ("cpu", "cuda"):
        steps = []
        request = make_request(tmp_path / device, samples, dtype=torch.float32)
        run(replace(request, device=device), on_progress=steps.append)
        losses[device] = next(step.metrics["loss"] for step in steps if step.metrics)
    assert losses["cuda"] == pytest.approx(losses["cpu"], abs=1e-4)
