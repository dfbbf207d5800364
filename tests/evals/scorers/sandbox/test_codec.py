import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.scorers.sandbox.codec import NotData, NotPlain, decode, encode

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
keys = st.integers() | st.text() | st.tuples(st.integers(), st.text())
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner) | st.sets(st.integers()),
    max_leaves=20,
)


@given(values)
def test_plain_values_survive_the_trip(value):
    arrived = decode(json.loads(json.dumps(encode(value))))
    assert arrived == value and type(arrived) is type(value)


def test_a_dict_that_looks_like_a_tag_survives_too():
    assert decode(encode({"t": "tuple", "v": [1]})) == {"t": "tuple", "v": [1]}


def test_generators_and_ranges_arrive_as_what_they_yield():
    assert list(decode(encode(n * n for n in range(3)))) == [0, 1, 4]
    assert decode(encode(range(2, 9, 3))) == range(2, 9, 3)


def test_nan_and_huge_integers_travel():
    assert math.isnan(decode(json.loads(json.dumps(encode(math.nan)))))
    assert decode(json.loads(json.dumps(encode(10**5000)))) == 10**5000


def test_subclasses_arrive_as_the_builtin_they_extend():
    class AlwaysEqual(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    arrived = decode(encode(AlwaysEqual(3)))
    assert type(arrived) is int and arrived != 4


@pytest.mark.parametrize("value", [object(), print, [print], {"a": NotData}])
def test_what_is_not_data_does_not_travel(value):
    with pytest.raises(NotData, match="not plain data"):
        encode(value)


@pytest.mark.parametrize(
    "message",
    [{"t": "set", "v": [[1]]}, {"t": "dict", "v": [1]}, {"t": "tuple", "v": 3}, {"t": "os.system", "v": ["ls"]},
     {"t": "range", "v": [1]}, {"t": "int", "v": "zz"}, {"t": [], "v": []}],
)  # fmt: skip
def test_malformed_messages_are_refused(message):
    with pytest.raises(NotPlain):
        decode(message)


def test_endless_nesting_is_refused_both_ways():
    value = []
    for _ in range(100):
        value = [value]
    with pytest.raises(NotPlain, match="nested"):
        encode(value)
    with pytest.raises(NotPlain, match="nested"):
        decode(value)
