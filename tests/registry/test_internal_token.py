"""Tokens of the product's own processes: for one purpose, for some minutes, of one home."""

import pytest

from registry import internal_token as internal
from registry.internal_token import BadToken, Purpose

SECRET = "of this home"


def test_a_token_says_what_was_put_into_it():
    claim = internal.read(SECRET, internal.mint(SECRET, Purpose.ANSWERS, project="p-1", source="judge"))
    assert (claim.purpose, claim.project, claim.source) == (Purpose.ANSWERS, "p-1", "judge")


def test_another_home_refuses_it():
    with pytest.raises(BadToken, match="not one of this home"):
        internal.read("of another", internal.mint(SECRET, Purpose.WEIGHTS))


def test_it_ends_after_minutes():
    with pytest.raises(BadToken, match="ended 1 s ago"):
        internal.read(SECRET, internal.mint(SECRET, Purpose.WEIGHTS, lifetime_s=-1))


def test_one_good_for_longer_than_minutes_is_refused_though_its_signature_is_right():
    with pytest.raises(BadToken, match="at most 300 s"):
        internal.read(SECRET, internal.mint(SECRET, Purpose.WEIGHTS, lifetime_s=86_400))


def test_a_changed_claim_or_signature_is_refused():
    token = internal.mint(SECRET, Purpose.WEIGHTS)
    for index in range(len(internal.PREFIX), len(token)):
        changed = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
        with pytest.raises(BadToken):
            internal.read(SECRET, changed)


@pytest.mark.parametrize("token", ["", "internal.", "internal..", f"internal.{SECRET}", "é.é", "internal.a.b.c"])
def test_other_text_is_no_token(token):
    with pytest.raises(BadToken):
        internal.read(SECRET, token)
