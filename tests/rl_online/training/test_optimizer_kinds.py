import importlib.util
import math
import os
import sys

import pytest
import torch
from torch.nn import Parameter

from rl_online.policy.load import load_policy
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.optimizer import MasterOptimizer
from rl_online.training.optimizer_kinds import hidden_matrices
from tests.conftest import unavailable

KINDS = ["adamw", "muon", "adamw8bit"]


def optimizer_for(kind, *shape, seed=0, start=None, **settings):
    if kind == "adamw8bit":
        find_torchao()
    weight = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) if start is None else start
    parameter = Parameter(weight.bfloat16())
    return parameter, MasterOptimizer([("w", parameter)], UpdateConfig(optimizer=kind, **settings), hidden={"w"})


def find_torchao():
    """CI has it in a folder of its own."""
    if (folder := os.environ.get("STROP_TEST_TORCHAO")) and folder not in sys.path:
        sys.path.append(folder)
    if importlib.util.find_spec("torchao") is None:
        unavailable("adamw8bit needs the extra: pip install 'strop[adamw8bit]'")


def learn(parameter, optimizer, *seeds):
    for seed in seeds:
        gradient = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
        (parameter.float() * gradient).sum().backward()
        optimizer.step()


def test_muon_moves_a_matrix_along_its_orthogonalised_momentum():
    parameter, optimizer = optimizer_for("muon", start=torch.eye(2), learning_rate=0.1, grad_clip=100.0)
    (parameter.float() * torch.tensor([[3.0, 0.0], [0.0, 4.0]])).sum().backward()
    optimizer.step()
    # Momentum .05 G and Nesterov .0975 G point where G does, of norm 5: singular values .6 and .8. Its step is as large
    # as AdamW's: .2 sqrt(2), the longer side of the matrix under the root, times the learning rate. torch iterates in
    # bfloat16, which costs up to 3 % of the step.
    step = 0.1 * 0.2 * math.sqrt(2)
    expected = [[1 - step * newton_schulz(0.6), 0.0], [0.0, 1 - step * newton_schulz(0.8)]]
    torch.testing.assert_close(optimizer.masters["w"], torch.tensor(expected), atol=1e-3, rtol=0)


def newton_schulz(value):
    """Five steps of 3.4445 s - 4.7750 s^3 + 2.0315 s^5 on a singular value, towards 1."""
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    return value


def test_muon_takes_what_torch_gives_and_adamw_the_rest(tmp_path):
    model = load_policy(build_tiny_policy(tmp_path, ["a", "b"], dtype=torch.float32))
    hidden = hidden_matrices(model)
    assert "model.layers.0.mlp.up_proj.weight" in hidden
    assert not hidden & {"model.embed_tokens.weight", "model.norm.weight"}
    theirs = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
    by_kind = [[weight for name, weight in theirs.items() if (name in hidden) == is_hidden] for is_hidden in (1, 0)]
    common = {"lr": 1e-2, "weight_decay": 0.1}
    torch_own = [
        torch.optim.Muon(by_kind[0], momentum=0.9, adjust_lr_fn="match_rms_adamw", **common),
        torch.optim.AdamW(by_kind[1], betas=(0.9, 0.95), fused=True, **common),
    ]
    config = UpdateConfig(optimizer="muon", muon_momentum=0.9, learning_rate=1e-2, weight_decay=0.1, grad_clip=1e9)
    ours = MasterOptimizer(model.named_parameters(), config, hidden=hidden)
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        gradients = {name: torch.randn(weight.shape, generator=draw) for name, weight in theirs.items()}
        sum((weight * gradients[name]).sum() for name, weight in model.named_parameters()).backward()
        ours.step()
        for name, weight in theirs.items():
            weight.grad = gradients[name]
        for one in torch_own:
            one.step()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, theirs[name]), name


def test_moments_in_8_bits_step_nearly_as_those_in_32():
    steps = {}
    for kind in ("adamw", "adamw8bit"):
        parameter, optimizer = optimizer_for(kind, 64, 128, learning_rate=1e-2, grad_clip=1e9)
        start = optimizer.masters["w"].clone()
        learn(parameter, optimizer, *range(5))
        steps[kind] = optimizer.masters["w"] - start
    gap = (steps["adamw8bit"] - steps["adamw"]).norm() / steps["adamw"].norm()
    assert 0 < gap < 0.05
    kept = optimizer.tensors()
    assert kept["exp_avg.codes.w"].dtype is kept["exp_avg_sq.codes.w"].dtype is torch.uint8
    assert kept["exp_avg.scale.w"].numel() == 64 * 128 / 256  # one for each block


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimizer_that_stopped_goes_on_to_the_same_bits(tmp_path, kind):
    parameter, straight = optimizer_for(kind, 64, 128, learning_rate=1e-2)
    learn(parameter, straight, 0, 1, 2, 3)
    before, first = optimizer_for(kind, 64, 128, learning_rate=1e-2)
    learn(before, first, 0, 1)
    first.save(tmp_path)
    after, second = optimizer_for(kind, start=before.detach(), learning_rate=1e-2)
    second.load(tmp_path, first.step_count)
    learn(after, second, 2, 3)
    assert torch.equal(second.masters["w"], straight.masters["w"]) and torch.equal(after, parameter)
    assert all(torch.equal(one, straight.tensors()[name]) for name, one in second.tensors().items())


def test_another_kind_of_optimizer_starts_its_moments_anew_and_keeps_the_masters(tmp_path):
    before, first = optimizer_for("adamw", 4, 4, learning_rate=1e-2)
    learn(before, first, 0, 1)
    first.save(tmp_path)
    _, second = optimizer_for("muon", start=before.detach())
    second.load(tmp_path, first.step_count)
    assert torch.equal(second.masters["w"], first.masters["w"])
    assert second.tensors().keys() == {"low.w"}


def test_muon_is_refused_with_a_torch_that_lacks_it(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ContradictoryUpdate, match=r"muon needs torch 2\.9 or newer"):
        optimizer_for("muon", 4, 4)


def test_moments_in_8_bits_are_refused_without_the_library_they_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    config = UpdateConfig(optimizer="adamw8bit")
    with pytest.raises(ContradictoryUpdate, match=r"needs torchao, .* pip install 'strop\[adamw8bit\]'"):
        MasterOptimizer([("w", Parameter(torch.zeros(4)))], config)
