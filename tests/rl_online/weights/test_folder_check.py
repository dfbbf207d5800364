"""A user's folder is refused with the file's name and the fix, before anything is loaded."""

import json

import pytest
import torch
from safetensors.torch import save_file

from rl_online.policy.tiny import build_tiny_policy
from rl_online.weights.folder_check import UnusableFolder, check_folder


@pytest.fixture
def folder(tmp_path):
    return build_tiny_policy(tmp_path / "mine", ["a", "b"])


def change_json(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_whole_folder_passes_without_a_note(folder):
    assert check_folder(folder).notes == ()


def test_a_folder_without_a_chat_template_can_be_used_and_says_what_will_not_work(folder):
    for path in folder.glob("chat_template*"):
        path.unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (note,) = check_folder(folder).notes
    assert "chat requests are refused" in note


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: (f / "pytorch_model.bin").write_bytes(b"x"), "pytorch_model.bin may run code"),
        (lambda f: (f / "modeling_mine.py").write_text(""), "modeling_mine.py may run code when loaded; remove it"),
        (lambda f: (f / "x.txt").symlink_to("/etc/hostname"), "x.txt is a symbolic link"),
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "config.json is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json is not a JSON object"),
        (lambda f: (f / "config.json").write_text("{}"), "config.json names no model_type"),
        (lambda f: change_json(f / "config.json", auto_map={"AutoModel": "x"}), "config.json asks for code of its own"),
        (lambda f: change_json(f / "tokenizer_config.json", auto_map={}), "tokenizer_config.json asks for code"),
        (lambda f: (f / "adapter_config.json").write_text("{}"), "this is an adapter; merge it"),
        (lambda f: (f / "model.safetensors").unlink(), "no .safetensors file"),
        (lambda f: (f / "model.safetensors").write_bytes(b"abc"), "model.safetensors is no safetensors file"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing; save the tokenizer"),
        (lambda f: (f / "tokenizer.json").write_bytes(b"\xff"), "tokenizer.json is not JSON"),
    ],
)
def test_what_is_wrong_is_named_with_the_file_and_the_fix(folder, spoil, said):
    spoil(folder)
    with pytest.raises(UnusableFolder) as refusal:
        check_folder(folder)
    assert said in str(refusal.value)


def test_a_file_that_was_cut_says_how_long_it_should_be(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(UnusableFolder, match="copy it again, whole"):
        check_folder(folder)


def test_a_shard_that_the_index_names_must_be_there(folder):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    save_file({"a": torch.zeros(2)}, folder / "model-00001-of-00002.safetensors")
    with pytest.raises(UnusableFolder, match="model-00002-of-00002"):
        check_folder(folder)


def test_what_is_no_folder_is_said(tmp_path):
    with pytest.raises(UnusableFolder, match="no folder"):
        check_folder(tmp_path / "none")
