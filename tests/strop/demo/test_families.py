import re
from random import Random

import pytest

from strop.demo import families, on_lists
from strop.demo.variants import Family, draw


def answers_right(exercise, answer):
    """Runs the exercise's own cases on trusted text."""
    names = {}
    exec(exercise.prompt + answer, names)  # noqa: S102
    function = names[exercise.function]
    return all(function(*case.args) == case.expected for case in exercise.cases)


def by_name(families_):
    return pytest.mark.parametrize("family", families_, ids=lambda family: family.name)


@by_name(families.ALL)
def test_a_familys_reference_passes_its_own_tests(family: Family):
    rng = Random(1)
    for exercise in [draw(family, rng) for _ in range(20)]:
        assert answers_right(exercise, exercise.reference), exercise.prompt


@by_name(families.ALL)
def test_giving_back_the_argument_or_nothing_fails_a_familys_tests(family: Family):
    rng = Random(2)
    for exercise in [draw(family, rng) for _ in range(20)]:
        first = exercise.prompt.partition("(")[2].partition(")")[0].split(",")[0].split(":")[0]
        assert not answers_right(exercise, " None"), exercise.prompt
        assert not answers_right(exercise, f" {first}"), exercise.prompt


@by_name([family for family in families.ALL if isinstance(next(iter(family.constants), None), int)])
def test_the_neighbouring_constant_fails_most_variants_of_a_family(family: Family):
    rng = Random(3)
    exercises = [draw(family, rng) for _ in range(30)]
    wrong = 0
    for exercise in exercises:
        neighbour = re.sub(r"\d+", lambda found: str(int(found[0]) + 1), exercise.reference)
        wrong += not answers_right(exercise, neighbour)
    assert wrong >= 20


@by_name(families.ALL)
def test_a_family_has_hundreds_of_variants(family: Family):
    rng = Random(4)
    assert len({draw(family, rng).prompt for _ in range(700)}) > 400


def test_the_families_together_give_thousands_of_prompts():
    assert len({exercise.prompt for exercise in families.traffic(seed=0, volume=1, size=4000)}) == 4000


def test_every_prompt_ends_where_the_answer_begins():
    for exercise in families.held_out_seen():
        assert exercise.prompt.startswith(f"def {exercise.function}(")
        assert exercise.prompt.endswith('"""\n    return')


def test_held_out_traffic_and_fresh_sets_share_no_prompt():
    first = families.traffic(seed=0, volume=1, size=600)
    second = families.traffic(seed=0, volume=2, size=600)
    fresh = families.fresh(seed=0, size=384, besides=[*first, *second])
    sets = [families.held_out_seen(), families.held_out_unseen(), first, second, fresh]
    prompts = [exercise.prompt for exercises in sets for exercise in exercises]
    assert len(prompts) == 100 + 100 + 600 + 600 + 384
    assert len(set(prompts)) == len(prompts)


def test_held_out_halves_cover_the_families_they_are_about():
    assert {exercise.family for exercise in families.held_out_seen()} == {family.name for family in families.SEEN}
    assert {exercise.family for exercise in families.held_out_unseen()} == families.NEVER_IN_TRAFFIC


def test_traffic_never_contains_an_unseen_family():
    names = {exercise.family for exercise in families.traffic(seed=3, volume=1, size=800)}
    assert names == {family.name for family in families.SEEN}


def test_the_same_seed_gives_the_same_problems_and_another_seed_others():
    once, again = (families.traffic(seed=5, volume=1, size=50) for _ in range(2))
    assert once == again
    assert once != families.traffic(seed=6, volume=1, size=50)


def test_asking_for_more_than_a_family_has_is_refused():
    with pytest.raises(ValueError, match="has no new variant"):
        families._draw_set([on_lists.SMALLEST], 5000, Random(0), taken=set())
