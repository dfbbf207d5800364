import json

import pytest

from rl_online.weights.errors import CorruptCheckpoint, CorruptDelta, WrongBase
from rl_online.weights.manifest import verify_folder
from rl_online.weights.publish import (
    adopt_folder,
    decode_published,
    parse_delta_manifest,
    publish_delta,
    rebuild_folder,
)
from rl_online.weights.tensors import read_tensors
from tests.rl_online.weights.folders import nudged, random_tensors, write_folder


@pytest.fixture
def pair(tmp_path):
    tensors = random_tensors()
    parent = write_folder(tmp_path / "v000002", tensors, version=2)
    child = write_folder(tmp_path / "v000003", nudged(tensors), version=3, parent=2, batches=["b"])
    return parent, child


def published(pair, tmp_path):
    ref = publish_delta(*pair, tmp_path / "deltas")
    return ref.path.read_bytes(), parse_delta_manifest(ref.manifest_path.read_bytes())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_rebuilt_from_the_parent_and_the_delta_equals_the_childs_byte_for_byte(pair, tmp_path):
    rebuild_folder(pair[0], *published(pair, tmp_path), tmp_path / "received")
    assert contents(tmp_path / "received") == contents(pair[1])


def test_a_changed_config_travels_with_the_delta(tmp_path):
    tensors = random_tensors()
    pair = write_folder(tmp_path / "a", tensors), write_folder(tmp_path / "b", tensors, version=2, config="{}")
    rebuild_folder(pair[0], *published(pair, tmp_path), tmp_path / "received")
    assert contents(tmp_path / "received") == contents(pair[1])


def test_names_carry_both_versions(pair, tmp_path):
    ref = publish_delta(*pair, tmp_path / "deltas")
    assert ref.path.name == "000003-from-000002.gapulp"
    assert ref.manifest_path.name == "000003-from-000002.gapulp.json"
    assert ref.size == ref.path.stat().st_size


def test_publishing_again_leaves_the_files_alone(pair, tmp_path):
    first = publish_delta(*pair, tmp_path / "deltas")
    times = [path.stat().st_mtime_ns for path in (first.path, first.manifest_path)]
    again = publish_delta(*pair, tmp_path / "deltas")
    assert [path.stat().st_mtime_ns for path in (again.path, again.manifest_path)] == times


def test_publishing_again_repairs_a_damaged_object(pair, tmp_path):
    ref = publish_delta(*pair, tmp_path / "deltas")
    whole = ref.path.read_bytes()
    ref.path.write_bytes(whole[:-1])
    publish_delta(*pair, tmp_path / "deltas")
    assert ref.path.read_bytes() == whole


def test_a_damaged_folder_is_never_published(pair, tmp_path):
    (pair[1] / "config.json").write_text("{ }")
    with pytest.raises(CorruptCheckpoint):
        publish_delta(*pair, tmp_path / "deltas")
    assert not (tmp_path / "deltas").exists()


def test_a_damaged_delta_makes_no_folder(pair, tmp_path):
    delta, manifest = published(pair, tmp_path)
    with pytest.raises(CorruptDelta):
        rebuild_folder(pair[0], delta[:-1] + b"x", manifest, tmp_path / "received")
    assert not (tmp_path / "received").exists()


def test_another_parent_makes_no_folder(pair, tmp_path):
    with pytest.raises(WrongBase):
        rebuild_folder(pair[1], *published(pair, tmp_path), tmp_path / "received")
    assert not (tmp_path / "received").exists()


def test_the_whole_object_of_another_update_is_refused(pair, tmp_path):
    _, manifest = published(pair, tmp_path)
    other = write_folder(tmp_path / "other", nudged(random_tensors(), seed=5), version=3)
    other_delta = publish_delta(pair[0], other, tmp_path / "others").path.read_bytes()
    with pytest.raises(CorruptDelta, match="not the object"):
        decode_published(read_tensors(pair[0]), other_delta, manifest)


def test_every_changed_byte_of_a_deltas_manifest_is_refused(pair, tmp_path):
    data = publish_delta(*pair, tmp_path / "deltas").manifest_path.read_bytes()
    for place in range(0, len(data), 7):
        with pytest.raises(CorruptCheckpoint):
            parse_delta_manifest(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def test_a_manifest_may_not_write_outside_its_folder(pair, tmp_path):
    delta, manifest = published(pair, tmp_path)
    manifest.manifest.files["../evil"] = manifest.manifest.files["config.json"]
    with pytest.raises(CorruptDelta, match="outside"):
        rebuild_folder(pair[0], delta, manifest, tmp_path / "received")
    assert not (tmp_path / "evil").exists()


def test_a_plain_folder_becomes_the_first_checkpoint_of_a_policy(tmp_path):
    source = write_folder(tmp_path / "store", random_tensors())
    manifest = adopt_folder(source, tmp_path / "policy" / "v000001", policy="uuid", version=1)
    assert (manifest.policy, manifest.version, manifest.parent) == ("uuid", 1, None)
    assert verify_folder(tmp_path / "policy" / "v000001") == manifest
    assert adopt_folder(source, tmp_path / "policy" / "v000001", policy="uuid", version=1) == manifest


def test_a_damaged_folder_is_not_adopted(tmp_path):
    source = write_folder(tmp_path / "store", random_tensors())
    (source / "config.json").write_text(json.dumps({}))
    with pytest.raises(CorruptCheckpoint):
        adopt_folder(source, tmp_path / "v000001", policy="uuid", version=1)
