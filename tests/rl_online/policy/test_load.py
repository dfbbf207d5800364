import pytest
import torch

from rl_online.policy.load import choose_device, load_policy, load_tokenizer
from rl_online.policy.tiny import build_tiny_policy


def test_a_policy_loads_in_the_dtype_of_its_file(tmp_path):
    assert load_policy(build_tiny_policy(tmp_path, ["a"])).dtype is torch.bfloat16
    assert load_policy(tmp_path, dtype=torch.float32).dtype is torch.float32


def test_tied_weights_stay_one_tensor(tmp_path):
    model = load_policy(build_tiny_policy(tmp_path, ["a"]))
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_a_pickle_is_never_loaded(tmp_path):
    build_tiny_policy(tmp_path, ["a"])
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError):
        load_policy(tmp_path)


def test_equal_arguments_give_equal_bytes_and_another_seed_does_not(tmp_path):
    one, two, other = (
        (build_tiny_policy(tmp_path / name, ["a", "b"], seed=seed) / "model.safetensors").read_bytes()
        for name, seed in (("one", 1), ("two", 1), ("other", 2))
    )
    assert one == two != other


def test_words_become_ids_and_back(tmp_path):
    tokenizer = load_tokenizer(build_tiny_policy(tmp_path, ["cat", "sat"]))
    assert tokenizer("cat sat dog")["input_ids"] == [2, 3, 1]
    assert tokenizer.decode([2, 3]) == "cat sat"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_asking_for_a_gpu_that_is_not_there_says_so():
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="use auto or cpu"):
        choose_device("cuda")
