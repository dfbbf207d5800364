import hashlib
import json
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rl_online.policy.load import load_policy
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.checkpoint_files import ADAPTER
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.lora import BASE, WEIGHTS, Adapter
from rl_online.training.state import state_folder
from rl_online.weights.manifest import verify_folder
from rl_online.weights.publish import parse_delta_manifest, rebuild_folder
from tests.rl_online.training.mixed_update import leave_after
from tests.rl_online.training.tiny_update import CONFIG, following, make_request, make_samples, run, state_bytes

LORA = replace(CONFIG, lora_rank=4, lora_alpha=8, snapshot_steps=1)


@pytest.fixture(scope="module")
def updates(tmp_path_factory):
    """Two updates of one line, the second with the adapter of the first."""
    torch.set_num_threads(1)
    first = make_request(tmp_path_factory.mktemp("lora"), config=LORA)
    results = [run(first)]
    second = following(first, make_samples(seed=1))
    return (first, second), [*results, run(second)]


def bytes_of(tensors):
    return hashlib.sha256(b"".join(tensors[name].view(torch.uint8).numpy().tobytes() for name in sorted(tensors)))


def test_a_checkpoint_is_base_plus_change_rounded_once(updates):
    (first, second), _ = updates
    base = load_file(first.parent_folder / "model.safetensors")
    for request in (first, second):
        own = load_file(request.out_folder / ADAPTER / WEIGHTS)
        for name, tensor in load_file(request.out_folder / "model.safetensors").items():
            layer = f"base_model.model.{name.removesuffix('.weight')}"
            if f"{layer}.lora_A.weight" not in own:
                assert torch.equal(tensor, base[name])
                continue
            change = own[f"{layer}.lora_B.weight"] @ own[f"{layer}.lora_A.weight"] * (8.0 / 4)
            assert torch.equal(tensor, (base[name].float() + change).bfloat16()), name


def test_the_base_keeps_its_bytes_through_update_after_update(updates):
    (first, second), _ = updates
    kept = load_file(state_folder(second.out_folder) / BASE)
    base = load_file(first.parent_folder / "model.safetensors")
    assert bytes_of(kept).digest() == bytes_of({name: base[name] for name in kept}).digest()
    assert not torch.equal(load_file(second.out_folder / "model.safetensors")[next(iter(kept))], kept[next(iter(kept))])


def test_a_thousand_merges_leave_the_base_and_give_the_same_weights(updates):
    (first, _), _ = updates
    model = load_policy(first.parent_folder)
    before = bytes_of(model.state_dict()).digest()
    adapter = Adapter.attach(model, LORA, seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=1e-2, generator=torch.Generator().manual_seed(0))
    once = bytes_of(adapter.merged()[0]).digest()
    for _ in range(999):
        last, _ = adapter.merged()
    base = {name.replace(".base_layer.", "."): one for name, one in model.state_dict().items() if "lora_" not in name}
    assert bytes_of(base).digest() == before != once == bytes_of(last).digest()


def test_what_rounding_lost_of_the_change_is_told(updates):
    _, results = updates
    for result in results:
        assert 0 < result.metrics["lora_merge_error"] < 1
        assert 0 < result.metrics["lora_moved_share"] < 1


def test_the_checkpoint_loads_as_any_other_and_travels_as_a_delta(updates, tmp_path):
    (first, second), results = updates
    model = AutoModelForCausalLM.from_pretrained(second.out_folder, dtype="auto")
    assert not any("lora" in name for name, _ in model.named_parameters())
    delta = results[1].delta
    manifest = parse_delta_manifest(delta.manifest_path.read_bytes())
    rebuilt = rebuild_folder(first.out_folder, delta.path.read_bytes(), manifest, tmp_path / "received")
    assert rebuilt == verify_folder(second.out_folder)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")  # peft asks by the older name
def test_peft_takes_the_adapter_beside_the_base(updates):
    from peft import PeftModel

    (first, second), _ = updates
    settings = json.loads((second.out_folder / ADAPTER / "adapter_config.json").read_text())
    assert (settings["r"], settings["base_model_name_or_path"]) == (4, None)
    apart = PeftModel.from_pretrained(
        load_policy(first.parent_folder, dtype=torch.float32), second.out_folder / ADAPTER
    )
    merged = load_policy(second.out_folder, dtype=torch.float32)
    ids = torch.tensor([[2, 3, 4, 5]])
    with torch.no_grad():
        torch.testing.assert_close(apart(ids).logits, merged(ids).logits, atol=2e-2, rtol=0)


def test_an_adapter_goes_on_to_the_same_bits_after_a_kill(updates, tmp_path):
    (_, second), results = updates
    again = make_request(tmp_path, config=LORA)
    run(again)
    resumed = following(again, make_samples(seed=1))
    leave_after(resumed, step=2)
    assert run(resumed).tree_digest == results[1].tree_digest
    assert state_bytes(resumed) == state_bytes(second)


def test_an_adapter_of_another_rank_starts_anew_on_the_merged_weights(updates):
    (_, second), _ = updates
    other = replace(following(second, make_samples(seed=2)), config=replace(LORA, lora_rank=2))
    run(other)
    kept = load_file(state_folder(other.out_folder) / BASE)
    merged = load_file(second.out_folder / "model.safetensors")
    assert all(torch.equal(tensor, merged[name]) for name, tensor in kept.items())
    whole = replace(following(other, make_samples(seed=3)), config=CONFIG)  # and then every weight trains again
    run(whole)
    assert not (whole.out_folder / ADAPTER).exists()


def test_layers_that_are_not_there_are_refused(updates):
    (first, _), _ = updates
    with pytest.raises(ContradictoryUpdate, match="lora_targets is 'nowhere': "):
        Adapter.attach(load_policy(first.parent_folder), UpdateConfig(lora_rank=2, lora_targets="nowhere"), seed=0)


def test_without_peft_it_is_refused_with_the_fix(updates, monkeypatch):
    (first, _), _ = updates
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ContradictoryUpdate, match=r"pip install 'strop\[lora\]'"):
        Adapter.attach(load_policy(first.parent_folder), LORA, seed=0)
