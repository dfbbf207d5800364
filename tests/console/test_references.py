"""Ids that senders made up survive the trip through an address."""

import pytest

from console.references import Reference


@pytest.mark.parametrize("value", ["edit-42", "0199-ab", "user@host", "a:b.c"])
def test_a_plain_id_stands_as_it_is(value):
    assert Reference().to_url(value) == value


@pytest.mark.parametrize("value", ["a/b", "..", ".", "a b", "~x", "안녕", "a?b#c", '"><script>', "%2e%2e"])
def test_any_other_id_comes_back_the_same(value):
    written = Reference().to_url(value)
    assert written.startswith("~") and Reference().to_python(written) == value


@pytest.mark.parametrize("value", ["~!!", "~_w", "~a"])
def test_what_was_never_written_is_not_found(value):
    with pytest.raises(ValueError):
        Reference().to_python(value)
