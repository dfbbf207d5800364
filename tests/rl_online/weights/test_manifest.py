import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import (
    TensorRow,
    parse_manifest,
    read_manifest,
    tree_digest,
    verify_folder,
    write_manifest,
)
from tests.rl_online.weights.folders import random_tensors, write_folder


def test_the_tree_digest_of_one_tensor_is_the_one_in_the_contract():
    row = TensorRow(dtype="BF16", shape=(49152, 576), xxh3_128="00112233445566778899aabbccddeeff")
    assert (
        tree_digest({"model.embed_tokens.weight": row})
        == "03d03a20b613ec68b81bff833c324d980eca7d6775748960f797c606324955b2"
    )


def test_a_folder_verifies_as_it_was_written(tmp_path):
    folder = write_folder(tmp_path / "v000002", random_tensors(), version=2, parent=1, batches=["b"], optimizer_step=6)
    manifest = verify_folder(folder)
    assert (manifest.version, manifest.parent, manifest.batches, manifest.optimizer_step) == (2, 1, ["b"], 6)
    assert set(manifest.files) == {"model.safetensors", "config.json"}
    assert manifest.tensors["model.embed_tokens.weight"].shape == (40, 8)


def test_the_same_weights_have_the_same_tree_digest_in_any_folder(tmp_path):
    one = write_folder(tmp_path / "a", random_tensors(), config="{}")
    two = write_folder(tmp_path / "b", random_tensors(), config="[]", version=9)
    assert read_manifest(one).tree_digest == read_manifest(two).tree_digest


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["MANIFEST.json", "model.safetensors", "config.json"]), data=st.data())
def test_any_one_changed_byte_is_refused(tmp_path, name, data):
    folder = tmp_path / "v000001"
    if not folder.exists():
        write_folder(folder, random_tensors())
    whole = (folder / name).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    (folder / name).write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
    try:
        with pytest.raises(CorruptCheckpoint):
            verify_folder(folder)
    finally:
        (folder / name).write_bytes(whole)


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.safetensors", "config.json"])
def test_a_missing_or_cut_file_is_refused(tmp_path, name):
    folder = write_folder(tmp_path / "v000001", random_tensors())
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-1])
    with pytest.raises(CorruptCheckpoint):
        verify_folder(folder)
    (folder / name).unlink()
    with pytest.raises(CorruptCheckpoint):
        verify_folder(folder)


def test_a_file_nobody_listed_is_refused(tmp_path):
    folder = write_folder(tmp_path / "v000001", random_tensors())
    (folder / "model2.safetensors").write_bytes(b"")
    with pytest.raises(CorruptCheckpoint, match="model2"):
        verify_folder(folder)


def test_a_manifest_without_one_of_its_tensor_rows_is_refused(tmp_path):
    folder = write_folder(tmp_path / "v000001", random_tensors())
    values = json.loads((folder / "MANIFEST.json").read_text())
    del values["tensors"]["model.norm.weight"]
    (folder / "MANIFEST.json").write_text(json.dumps(values))
    with pytest.raises(CorruptCheckpoint):
        verify_folder(folder)


def test_an_empty_or_foreign_manifest_is_refused():
    for data in (b"", b"[]", b"{}", b"\xff", b'{"digest": 1}'):
        with pytest.raises(CorruptCheckpoint):
            parse_manifest(data)


def test_a_folder_without_weights_gets_no_manifest(tmp_path):
    with pytest.raises(CorruptCheckpoint, match="no safetensors"):
        write_manifest(tmp_path, policy="p", version=1)
