import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.tensors import Tensor, build_header, read_tensor_file, read_tensors, write_tensor_file


def test_a_file_of_the_safetensors_library_reads_as_its_bytes(tmp_path):
    values = {"b": np.arange(6, dtype=np.float16).reshape(2, 3), "a": np.array(-0.0, np.float32)}
    save_file(values, tmp_path / "x.safetensors")
    found = read_tensor_file(tmp_path / "x.safetensors").tensors
    assert {name: (one.dtype, one.shape, one.data.tobytes()) for name, one in found.items()} == {
        "a": ("F32", (), values["a"].tobytes()),
        "b": ("F16", (2, 3), values["b"].tobytes()),
    }


def test_writing_what_was_read_gives_the_same_file(tmp_path):
    save_file({"b": np.arange(7, dtype=np.uint8), "a": np.zeros(0, np.float32)}, tmp_path / "x.safetensors")
    read = read_tensor_file(tmp_path / "x.safetensors")
    write_tensor_file(tmp_path / "y.safetensors", read.header, read.tensors)
    assert (tmp_path / "y.safetensors").read_bytes() == (tmp_path / "x.safetensors").read_bytes()


@pytest.mark.parametrize("cut", [1, 50, 10**6])
def test_a_cut_file_is_refused(tmp_path, cut):
    path = tmp_path / "x.safetensors"
    save_file({"a": np.arange(20)}, path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptCheckpoint):
        read_tensor_file(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F31", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        {"dtype": "F32", "shape": [2]},
        {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path, entry):
    header = json.dumps({"a": entry}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(CorruptCheckpoint):
        read_tensor_file(tmp_path / "x.safetensors")


def test_a_name_in_two_files_of_one_folder_is_refused(tmp_path):
    one = {"a": Tensor(dtype="U8", shape=(3,), data=np.arange(3, dtype=np.uint8))}
    for name in ("model-1.safetensors", "model-2.safetensors"):
        write_tensor_file(tmp_path / name, build_header(one), one)
    with pytest.raises(CorruptCheckpoint, match="a is in two files"):
        read_tensors(tmp_path)
