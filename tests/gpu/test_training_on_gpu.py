"""The numbers worked by hand for the CPU, on a GPU: fused AdamW, Muon, exact masters, attention, adapters, ranks."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import Parameter

from rl_online.policy.load import load_policy
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.checkpoint_files import ADAPTER
from rl_online.training.local import LocalTrainer
from rl_online.training.lora import WEIGHTS
from rl_online.training.objective import Objective
from rl_online.training.optimizer import MasterOptimizer, join_master, split_master
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.scoring import choose_attention
from rl_online.training.torchrun import run_on_ranks
from tests.rl_online.training.mixed_update import make_mixed, run_mixed
from tests.rl_online.training.test_optimizer_kinds import newton_schulz
from tests.rl_online.training.tiny_update import CONFIG, make_request, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]


def optimizer_for(values, **settings):
    parameter = Parameter(torch.tensor(values, dtype=torch.bfloat16, device="cuda"))
    return parameter, MasterOptimizer([("w", parameter)], UpdateConfig(**settings), hidden={"w"})


def learn(parameter, optimizer, gradient):
    (parameter.float() * torch.tensor(gradient, device="cuda")).sum().backward()
    return optimizer.step()


def test_fused_adamw_moves_each_master_by_the_learning_rate():
    parameter, optimizer = optimizer_for([1.0, -2.0], learning_rate=1e-3, grad_clip=100.0)
    assert learn(parameter, optimizer, [3.0, -4.0]) == (True, 5.0)
    assert optimizer.masters["w"].tolist() == pytest.approx([1.0 - 1e-3, -2.0 + 1e-3], abs=1e-6)


def test_muon_moves_a_matrix_along_its_orthogonalised_momentum():
    parameter, optimizer = optimizer_for([[1.0, 0.0], [0.0, 1.0]], optimizer="muon", learning_rate=0.1, grad_clip=100.0)
    learn(parameter, optimizer, [[3.0, 0.0], [0.0, 4.0]])
    step = 0.1 * 0.2 * 2**0.5
    expected = [[1 - step * newton_schulz(0.6), 0.0], [0.0, 1 - step * newton_schulz(0.8)]]
    torch.testing.assert_close(optimizer.masters["w"].cpu(), torch.tensor(expected), atol=1e-3, rtol=0)


def test_moments_in_8_bits_step_by_the_learning_rate_at_first():
    pytest.importorskip("torchao", reason="adamw8bit needs the extra: pip install 'strop[adamw8bit]'")
    parameter, optimizer = optimizer_for([[1.0] * 256] * 16, optimizer="adamw8bit", learning_rate=1e-3, grad_clip=1e9)
    learn(parameter, optimizer, [[3.0] * 256] * 16)
    assert optimizer.masters["w"].mean().item() == pytest.approx(1.0 - 1e-3, abs=1e-5)


def test_a_master_is_its_weight_and_its_low_bits_exactly():
    masters = torch.randn(100_000, generator=torch.Generator().manual_seed(0)).cuda()
    weight, low = split_master(masters)
    assert torch.equal(join_master(weight, low).view(torch.int32), masters.view(torch.int32))


def test_fused_attention_gives_the_log_probabilities_of_plain_attention(tmp_path):
    request = make_request(tmp_path)
    samples = [TrainingSample(token_ids=[2, 3, 4, 5], positions=[2, 3], weights={Stream.CE: 1.0}, reward=0.0)]
    trainer = LocalTrainer(request.parent_folder, config=CONFIG, device="cuda", seed=0)
    choose_attention(trainer.model, max_length=4)
    assert trainer.model.config._attn_implementation == "sdpa"
    found = trainer.logprobs(samples)[0]
    plain = load_policy(request.parent_folder, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        logp_TV = plain(torch.tensor([samples[0].token_ids])).logits[0].log_softmax(-1)
    assert found == pytest.approx([float(logp_TV[1, 4]), float(logp_TV[2, 5])], abs=0.02)


def test_the_loss_of_a_pass_is_the_mean_over_its_tokens(tmp_path):
    request = make_request(tmp_path)
    samples = [TrainingSample(token_ids=[2, 3, 4, 5], positions=[1, 3], weights={Stream.CE: 1.0}, reward=0.0)]
    trainer = LocalTrainer(request.parent_folder, config=CONFIG, device="cuda", seed=0)
    seen = trainer.forward_backward(samples, Objective.of(samples, CONFIG))
    assert seen.losses["ce"] == pytest.approx(-sum(seen.logprobs[0]) / 2, rel=1e-5)


def test_an_adapter_is_merged_and_rounded_once(tmp_path):
    request = make_request(tmp_path, config=replace(CONFIG, lora_rank=4, lora_alpha=8), device="cuda")
    run(request)
    own = load_file(request.out_folder / ADAPTER / WEIGHTS)
    name = "model.layers.0.mlp.up_proj"
    lora_a, lora_b = (own[f"base_model.model.{name}.lora_{side}.weight"] for side in "AB")
    base, merged = (load_file(one / "model.safetensors")[f"{name}.weight"] for one in
                    (request.parent_folder, request.out_folder))  # fmt: skip
    torch.testing.assert_close(merged.float(), base.float() + 2 * lora_b @ lora_a, atol=0, rtol=2**-8)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_ranks_on_gpus_learn_what_one_process_learns(tmp_path, num_ranks):
    if torch.cuda.device_count() < num_ranks:
        pytest.skip(f"this machine has fewer than {num_ranks} GPUs")
    one, shared = (replace(make_mixed(tmp_path / name), device="cuda") for name in ("one", "shared"))
    seen = []
    run_on_ranks(shared, on_progress=seen.append, is_cancelled=lambda: False, num_ranks=num_ranks, num_threads=1)
    assert [step.metrics["loss"] for step in seen[1:]] == pytest.approx(run_mixed(one), abs=1e-4)
