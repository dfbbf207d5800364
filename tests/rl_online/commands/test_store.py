import json
import pickle

import pytest
import torch

from rl_online.commands.store import SMOLLM2_TREE_DIGEST, UnusableModel, add_folder, main
from rl_online.policy.load import load_policy, load_tokenizer
from rl_online.policy.tiny import build_tiny_policy
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import verify_folder


def quiet(line):
    pass


@pytest.fixture
def source(tmp_path):
    return build_tiny_policy(tmp_path / "mine", ["a", "b"])


def test_a_users_folder_is_copied_and_described(source, tmp_path):
    stored = add_folder(source, tmp_path / "models", say=quiet)
    assert stored.folder == tmp_path / "models" / "mine"
    assert verify_folder(stored.folder).tree_digest == stored.tree_digest
    assert (stored.folder / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()


def test_adding_a_folder_again_finds_it(source, tmp_path):
    first = add_folder(source, tmp_path / "models", say=quiet)
    lines = []
    assert add_folder(source, tmp_path / "models", say=lines.append) == first
    assert lines == []


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "modeling_mine.py", "sub/optimizer.pkl"])
def test_a_folder_with_pickles_or_code_is_refused_and_nothing_is_kept(source, tmp_path, name):
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).write_bytes(pickle.dumps(1))
    with pytest.raises(UnusableModel, match="may run code"):
        add_folder(source, tmp_path / "models", say=quiet)
    assert not (tmp_path / "models" / "mine").exists()


def test_a_symbolic_link_is_refused(source, tmp_path):
    (source / "notes.txt").symlink_to("/etc/hostname")
    with pytest.raises(UnusableModel, match="symbolic link"):
        add_folder(source, tmp_path / "models", say=quiet)


def test_a_folder_without_weights_or_with_broken_ones_is_refused(source, tmp_path):
    (source / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes()[:-9])
    with pytest.raises(UnusableModel, match="its table says"):
        add_folder(source, tmp_path / "models", say=quiet)
    assert not (tmp_path / "models" / "mine").exists()
    (source / "model.safetensors").unlink()
    with pytest.raises(UnusableModel, match="at least one"):
        add_folder(source, tmp_path / "models", say=quiet)


def test_a_stored_model_that_was_damaged_is_refused(source, tmp_path):
    stored = add_folder(source, tmp_path / "models", say=quiet)
    (stored.folder / "config.json").write_text("{}")
    with pytest.raises(CorruptCheckpoint):
        add_folder(source, tmp_path / "models", say=quiet)


def test_the_command_prints_one_json_object(source, tmp_path, capsys):
    assert main([str(tmp_path / "models"), str(source)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"folder", "tree_digest"}


def test_the_command_says_on_stderr_why_it_failed(source, tmp_path, capsys):
    (source / "config.json").unlink()
    assert main([str(tmp_path / "models"), str(source)]) == 1
    output = capsys.readouterr()
    assert output.out == "" and "config.json" in output.err


def test_another_model_under_a_known_name_is_refused_instead_of_the_stored_one_being_served(source, tmp_path):
    add_folder(source, tmp_path / "models", say=quiet)
    another = build_tiny_policy(tmp_path / "elsewhere" / "mine", ["c", "d"])
    with pytest.raises(UnusableModel, match="another model is stored as mine"):
        add_folder(another, tmp_path / "models", say=quiet)


def test_the_result_is_kept_in_a_file_too_also_the_reason_of_a_refusal(source, tmp_path):
    result = tmp_path / "result.json"
    assert main([str(tmp_path / "models"), str(source), "--result", str(result)]) == 0
    assert set(json.loads(result.read_text())) == {"folder", "tree_digest"}
    (source / "tokenizer.json").unlink()
    assert main([str(tmp_path / "models"), str(source), "--result", str(result)]) == 1
    assert "tokenizer.json is missing" in json.loads(result.read_text())["error"]


@pytest.mark.model
def test_the_default_model_is_the_known_one_and_completes_code(model_folder):
    assert verify_folder(model_folder).tree_digest == SMOLLM2_TREE_DIGEST
    model, tokenizer = load_policy(model_folder), load_tokenizer(model_folder)
    assert model.dtype is torch.bfloat16
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert tokenizer.eos_token_id == tokenizer.pad_token_id
    prompt = "The capital of France is"
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert tokenizer.decode(model(input_ids=ids).logits[0, -1].argmax()) == " Paris"
