from dataclasses import replace

import pytest

from rl_online.rewards.batch import Batch
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.pairs import find_pairs, part_of, split_pairs
from tests.rl_online.training.tiny_pairs import PAIR_CONFIG, make_pairs


def batch_of(samples):
    return Batch(digest="d", samples=samples)


def test_a_pair_is_the_rejected_row_and_the_one_it_names():
    samples = make_pairs(2)
    first, second = find_pairs(batch_of(samples), replace(PAIR_CONFIG, pair_margin=0.5))
    assert (first.chosen, first.rejected) == (samples[0].token_ids, samples[1].token_ids)
    assert (first.place, second.place, first.margin, first.person) == (1, 3, 0.5, "person-0")
    assert first.chosen[: first.prompt_length] == first.rejected[: first.prompt_length]


def test_a_pair_may_say_how_sure_people_were():
    samples = make_pairs(1)
    samples[1] = replace(samples[1], row=samples[1].row | {"margin": 2.0})
    assert find_pairs(batch_of(samples), PAIR_CONFIG)[0].margin == 2.0


@pytest.mark.parametrize("changes", [{"row": {"tombstone": "d"}}, {"weight": 0.0}, {"row": {"kind": "rl"}}])
def test_no_pair_lacks_a_side(changes):
    samples = make_pairs(2)
    samples[1] = replace(samples[1], **changes)
    assert [one.place for one in find_pairs(batch_of(samples), PAIR_CONFIG)] == [3]


def test_people_are_on_one_side_only_and_about_a_fifth_of_the_pairs_is_set_aside():
    split = split_pairs(batch_of(make_pairs()), PAIR_CONFIG)
    assert {one.person for one in split.trained}.isdisjoint(one.person for one in split.heldout)
    assert len(split.trained) + len(split.heldout) == 96 and len(split.heldout) == 20  # 5 people of 4 pairs each


def test_who_is_set_aside_follows_from_the_person_in_every_batch():
    first, second = (split_pairs(batch_of(make_pairs(seed=seed)), PAIR_CONFIG) for seed in (1, 2))
    assert {one.person for one in first.heldout} == {one.person for one in second.heldout}


def test_one_pair_set_aside_at_sealing_sets_nobody_else_aside():
    samples = [replace(one, row=one.row | {"is_heldout": True}) for one in make_pairs()]
    assert len(split_pairs(batch_of(samples), PAIR_CONFIG).trained) == 76


def test_proxy_and_gold_learn_from_different_people():
    proxy = split_pairs(batch_of(make_pairs()), PAIR_CONFIG, part="proxy")
    gold = split_pairs(batch_of(make_pairs()), PAIR_CONFIG, part="gold")
    people = [{one.person for one in [*split.trained, *split.heldout]} for split in (proxy, gold)]
    assert people[0].isdisjoint(people[1]) and len(people[0] | people[1]) == 24
    assert all(part_of(person) == "proxy" for person in people[0])


def test_too_few_pairs_are_refused_by_name():
    with pytest.raises(ContradictoryUpdate, match=r"8 pairs of 8 people .* leave 6 .* min_pairs asks for 8"):
        split_pairs(batch_of(make_pairs(8)), PAIR_CONFIG)


def test_an_unknown_part_is_refused():
    with pytest.raises(ContradictoryUpdate, match="part is 'half'; choose from"):
        split_pairs(batch_of(make_pairs()), PAIR_CONFIG, part="half")
