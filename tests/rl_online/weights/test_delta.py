import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_online.weights.delta import (
    apply_delta,
    changed_positions,
    decode_positions,
    encode_delta,
    encode_positions,
    parse_delta,
)
from rl_online.weights.errors import CorruptCheckpoint, CorruptDelta, WrongBase
from rl_online.weights.tensors import BITS, Tensor
from tests.rl_online.weights.folders import nudged, random_tensors, tensor


def same(one, two):
    def plain(tensors):
        return {name: (t.dtype, t.shape, t.data.tobytes()) for name, t in tensors.items()}

    return plain(one) == plain(two)


@st.composite
def tensor_pairs(draw):
    """A tensor of any dtype, and either a few changed items, a wholly other tensor, or the same."""
    dtype = draw(st.sampled_from(sorted(BITS)))
    shape = draw(st.sampled_from([(), (0,), (8,), (3, 8), (600, 8)]))
    if BITS[dtype] < 8 and shape == ():
        shape = (8,)
    size = int(np.prod(shape)) * BITS[dtype] // 8
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    old = rng.integers(0, 256, size, dtype=np.uint8)
    new = old.copy()
    if size:
        places = rng.integers(0, size, draw(st.sampled_from([0, 1, 3, size])))
        new[places] = rng.integers(0, 256, len(places), dtype=np.uint8)
    return Tensor(dtype=dtype, shape=shape, data=old), Tensor(dtype=dtype, shape=shape, data=new)


@settings(max_examples=300, deadline=None)
@given(pair=tensor_pairs())
def test_applying_a_delta_to_the_parent_gives_the_child_to_the_bit_for_every_dtype(pair):
    parent, child = {"w": pair[0]}, {"w": pair[1]}
    assert same(apply_delta(parent, encode_delta(parent, child)), child)


@pytest.mark.parametrize(
    "old, new",
    [
        (0x0000, 0x8000),  # +0 -> -0, equal as floats
        (0x7FC0, 0x7FC1),  # one NaN -> another NaN payload
        (0x7F80, 0xFF80),  # inf -> -inf
        (0x0001, 0x0002),  # subnormals
        (0x4040, 0x3C24),  # 3.0 -> 0.01, where adding bf16 differences is inexact
        (0xFFFF, 0x0000),
    ],
)
def test_bits_that_compare_oddly_as_floats_arrive_exactly(old, new):
    parent, child = ({"w": tensor(np.array([1, bits, 2], np.uint16))} for bits in (old, new))
    assert same(apply_delta(parent, encode_delta(parent, child)), child)


def test_new_removed_and_reshaped_tensors_arrive():
    parent = {"gone": tensor(np.ones(3, np.float32), "F32"), "w": tensor(np.ones(6, np.uint16))}
    child = {"w": tensor(np.ones((2, 3), np.uint16)), "new": tensor(np.array(7.0, np.float64), "F64")}
    assert same(apply_delta(parent, encode_delta(parent, child)), child)


def test_the_parent_is_left_as_it_was():
    parent = random_tensors()
    before = {name: one.data.tobytes() for name, one in parent.items()}
    apply_delta(parent, encode_delta(parent, nudged(parent)))
    assert {name: one.data.tobytes() for name, one in parent.items()} == before


def test_a_delta_is_refused_on_any_other_base():
    parent = random_tensors()
    delta = encode_delta(parent, nudged(parent))
    with pytest.raises(WrongBase):
        apply_delta(nudged(parent), delta)


def test_a_delta_applied_twice_is_refused_the_second_time():
    parent = random_tensors()
    delta = encode_delta(parent, nudged(parent))
    with pytest.raises(WrongBase):
        apply_delta(apply_delta(parent, delta), delta)


def test_a_delta_that_leads_elsewhere_than_promised_is_refused():
    parent = random_tensors()
    with pytest.raises(CorruptDelta, match="not to 0000"):
        apply_delta(parent, encode_delta(parent, nudged(parent)), tree="0" * 64)


@settings(max_examples=150, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_any_one_changed_byte_of_a_delta_is_refused(place, flip):
    parent = random_tensors()
    delta = bytearray(encode_delta(parent, nudged(parent)))
    delta[int(place * len(delta))] ^= flip
    with pytest.raises(CorruptDelta):
        apply_delta(parent, bytes(delta))


@given(
    place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), name=st.sampled_from(sorted(random_tensors()))
)
def test_any_one_changed_byte_of_the_base_is_refused(place, flip, name):
    parent = random_tensors()
    delta = encode_delta(parent, nudged(parent))
    parent[name].data[int(place * len(parent[name].data))] ^= flip
    with pytest.raises(WrongBase):
        apply_delta(parent, delta)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused_as_a_delta(noise):
    with pytest.raises(CorruptCheckpoint):
        parse_delta(noise)


def test_positions_become_the_bytes_of_the_docstring():
    assert encode_positions(np.array([0, 2, 300])).tolist() == [0, 1, 255, 42]


@given(st.sets(st.integers(0, 3000)))
def test_positions_survive_their_code(positions):
    ordered = np.array(sorted(positions), dtype=np.int64)
    assert decode_positions(encode_positions(ordered)).tolist() == ordered.tolist()


@given(st.integers(0, 40), st.sets(st.integers(0, 39)), st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]))
def test_changed_positions_are_found_in_whole_words_and_in_the_tail(length, places, dtype):
    old = np.zeros(length, dtype)
    new = old.copy()
    inside = sorted(place for place in places if place < length)
    new[inside] = 1
    assert changed_positions(old, new).tolist() == inside


def test_a_sparse_change_travels_small():
    old = np.random.default_rng(0).integers(0, 1 << 16, 1 << 20, dtype=np.uint16)
    new = old.copy()
    new[::100] += 1
    delta = encode_delta({"w": tensor(old)}, {"w": tensor(new)})
    assert len(delta) < old.nbytes / 100
