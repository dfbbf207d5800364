"""Which turns of a batch are only measured."""

from rl_online.rewards.heldout import choose_heldout


def test_of_many_turns_some_are_set_aside_whatever_their_order():
    turns = [f"turn-{n}" for n in range(400)]
    aside = choose_heldout(turns, at_most=16)
    assert len(aside) == 16 and aside < set(turns)
    assert choose_heldout(turns[::-1], at_most=16) == aside


def test_of_few_turns_none_is_set_aside_and_never_more_than_one_in_twenty():
    turns = [f"turn-{n}" for n in range(40)]
    assert [len(choose_heldout(turns[:n], at_most=16)) for n in (0, 1, 19, 20, 40)] == [0, 0, 0, 1, 2]
    assert choose_heldout(turns, at_most=0) == set()
