import dataclasses
import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rl_online.rewards.batch import CorruptBatch, Sample, merkle_root, read_batch, seal_batch


def sample(**changes):
    fields = {
        "token_ids": [5, 6, 7, 8],
        "prompt_length": 2,
        "mask": [0, 0, 1, 1],
        "behaviour_logprobs": [0.0, 0.0, -0.125, -0.75],
        "reward": 0.75,
        "baseline": 0.25,
        "versions": [-1, -1, 3, 3],
        "row": {"turn": "t1", "kind": "rl", "slice": "슬라이스"},
    }
    return Sample(**(fields | changes))


def test_the_merkle_root_of_three_digests_is_the_one_in_the_contract():
    digests = [hashlib.sha256(letter).hexdigest() for letter in (b"a", b"b", b"c")]
    assert merkle_root(digests) == "cac3d448d4e20a2ad5eae1f500e63c2a7f9217cd14572ba7fd22e26dc1ec2648"


def test_a_batch_reads_back_exactly_as_it_was_sealed(tmp_path):
    samples = [sample(), sample(behaviour_logprobs=None, weight=0.5, pair=0, row={"turn": "t2", "kind": "kto"})]
    sealed = seal_batch(samples, tmp_path)
    assert (sealed.num_samples, sealed.num_tokens, sealed.folder) == (2, 8, tmp_path / sealed.digest)
    assert read_batch(sealed.folder).samples == samples


def test_line_separators_of_other_alphabets_inside_a_row_do_not_split_it(tmp_path):
    samples = [sample(row={"turn": "a\u2028b\u2029c", "kind": "rl"}), sample(row={"turn": "d\x85e\x1ef", "kind": "rl"})]
    assert read_batch(seal_batch(samples, tmp_path).folder).samples == samples


def test_a_samples_digest_is_the_hash_of_its_row_a_zero_byte_and_its_tensors_in_name_order(tmp_path):
    folder = seal_batch([sample()], tmp_path).folder
    row = '{"kind":"rl","slice":"슬라이스","turn":"t1"}'.encode()
    in_name_order = [
        np.array([0.25], "<f4"),  # baseline
        np.array([0, 0, -0.125, -0.75], "<f4"),  # behaviour_logprobs
        np.array([1], "u1"),  # has_logprobs
        np.array([0, 0, 1, 1], "u1"),  # mask
        np.array([-1], "<i4"),  # pair
        np.array([2], "<i4"),  # prompt_lengths
        np.array([0.75], "<f4"),  # reward
        np.array([5, 6, 7, 8], "<i4"),  # token_ids
        np.array([-1, -1, 3, 3], "<i4"),  # version
        np.array([1], "<f4"),  # weight
    ]
    expected = hashlib.sha256(row + b"\0" + b"".join(part.tobytes() for part in in_name_order)).hexdigest()
    assert json.loads((folder / "MANIFEST.json").read_text())["samples"] == [expected]


def test_sealing_the_same_samples_twice_gives_one_folder(tmp_path):
    assert seal_batch([sample()], tmp_path) == seal_batch([sample()], tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_the_order_of_samples_is_part_of_the_digest(tmp_path):
    one, two = sample(), sample(reward=-0.25)
    assert seal_batch([one, two], tmp_path).digest != seal_batch([two, one], tmp_path).digest


@pytest.mark.parametrize("name", ["token_ids", "mask", "behaviour_logprobs", "reward", "weight", "version", "pair"])
def test_a_changed_tensor_is_refused(tmp_path, name):
    folder = seal_batch([sample(), sample()], tmp_path).folder
    tensors = load_file(folder / "tensors.safetensors")
    tensors[name] = tensors[name].copy()
    tensors[name][-1] += 1
    save_file(tensors, folder / "tensors.safetensors")
    with pytest.raises(CorruptBatch, match="does not match"):
        read_batch(folder)


@pytest.mark.parametrize("name", ["tensors.safetensors", "samples.jsonl", "MANIFEST.json"])
def test_a_truncated_file_is_refused(tmp_path, name):
    folder = seal_batch([sample()], tmp_path).folder
    (folder / name).write_bytes((folder / name).read_bytes()[:-20])
    with pytest.raises(CorruptBatch):
        read_batch(folder)


def test_a_batch_under_another_batchs_name_is_refused(tmp_path):
    folder = seal_batch([sample()], tmp_path).folder
    with pytest.raises(CorruptBatch):
        read_batch(folder.rename(tmp_path / ("0" * 64)))


def test_a_tombstone_keeps_the_root_and_the_places_of_the_others(tmp_path):
    folder = seal_batch([sample(), sample(reward=-0.25)], tmp_path).folder
    digest = json.loads((folder / "MANIFEST.json").read_text())["samples"][0]
    rows = (folder / "samples.jsonl").read_text("utf-8").splitlines()
    rows[0] = json.dumps({"tombstone": digest})
    (folder / "samples.jsonl").write_text("\n".join(rows), "utf-8")
    tensors = load_file(folder / "tensors.safetensors")
    for name in ("token_ids", "mask", "behaviour_logprobs", "version"):
        tensors[name] = tensors[name][4:]
    tensors["offsets"] = np.array([0, 0, 4])
    save_file(tensors, folder / "tensors.safetensors")
    gone, kept = read_batch(folder).samples
    assert gone.is_tombstone and gone.token_ids == []
    assert kept == sample(reward=-0.25)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"mask": [0, 0, 1]}, "sample 0 has 3 mask for 4 tokens"),
        ({"behaviour_logprobs": [0.0]}, "sample 0 has 1 behaviour_logprobs for 4 tokens"),
        ({"reward": float("nan")}, "not finite"),
        ({"mask": [0, 1, 1, 1]}, "must be 0 on its 2 prompt tokens"),
        ({"pair": 0}, "paired with 0"),
    ],
)
def test_a_sample_that_contradicts_itself_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        seal_batch([sample(**changes)], tmp_path)


def test_an_empty_batch_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        seal_batch([], tmp_path)


def test_a_sample_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample().reward = 1
