"""The demo's problems: which families occur in traffic, and the sets drawn from them, which never share a prompt.

The held-out sets are the same for every seed, so that scores of different runs compare; a traffic set avoids them
and every earlier volume of its seed. Pure: no model, no database.
"""

from collections.abc import Iterable, Sequence
from random import Random

from strop.demo import on_lists, on_numbers, on_text
from strop.demo.variants import Exercise, Family, draw

NEVER_IN_TRAFFIC = frozenset(
    {
        "subtract_constant", "at_most_constant", "odd", "smaller_of_two", "drop_last_items", "smallest", "lower_case",
        "ends_with",
    }
)  # fmt: skip
ALL = on_numbers.FAMILIES + on_lists.FAMILIES + on_text.FAMILIES
SEEN = tuple(family for family in ALL if family.name not in NEVER_IN_TRAFFIC)
UNSEEN = tuple(family for family in ALL if family.name in NEVER_IN_TRAFFIC)
SEEN_HALF, UNSEEN_HALF = "seen families", "unseen families"
HALF_SIZE = 100
TRAFFIC_PER_MINUTE = 400  # more than two cores can ask
MAX_TRIES = 300  # draws without a new prompt before a family counts as spent


def held_out_seen() -> list[Exercise]:
    """100 fresh problems of the families in traffic."""
    return _draw_set(SEEN, HALF_SIZE, Random("held out, seen families"), taken=set())


def held_out_unseen() -> list[Exercise]:
    """100 problems of families that never occur in traffic."""
    return _draw_set(UNSEEN, HALF_SIZE, Random("held out, unseen families"), taken=set())


def traffic_size(minutes: float) -> int:
    """How many problems a run of so many minutes sets aside."""
    return max(1024, round(minutes * TRAFFIC_PER_MINUTE))


def traffic(*, seed: int, volume: int, size: int) -> list[Exercise]:
    """What users ask: volume 1 is the first run on a home, each later run takes the next. Volumes share no prompt
    as long as each is drawn with the same size."""
    taken = _prompts(held_out_seen())
    for earlier in range(1, volume):
        taken |= _prompts(_draw_set(SEEN, size, Random(f"traffic {seed} {earlier}"), taken=taken))
    return _draw_set(SEEN, size, Random(f"traffic {seed} {volume}"), taken=taken)


def fresh(*, seed: int, size: int, besides: Iterable[Exercise]) -> list[Exercise]:
    """Problems of the families in traffic for a measurement after the loop, none held out and none of `besides`."""
    return _draw_set(SEEN, size, Random(f"fresh {seed}"), taken=_prompts(held_out_seen()) | _prompts(besides))


def _prompts(exercises: Iterable[Exercise]) -> set[str]:
    return {exercise.prompt for exercise in exercises}


def _draw_set(families: Sequence[Family], size: int, rng: Random, *, taken: set[str]) -> list[Exercise]:
    """As many of each family as fit, in random order, no prompt twice. Raises when a family has no new variant left."""
    taken = set(taken)
    order = [families[index % len(families)] for index in range(size)]
    rng.shuffle(order)
    return [_draw_new(family, rng, taken) for family in order]


def _draw_new(family: Family, rng: Random, taken: set[str]) -> Exercise:
    for _ in range(MAX_TRIES):
        exercise = draw(family, rng)
        if exercise.prompt not in taken:
            taken.add(exercise.prompt)
            return exercise
    raise ValueError(f"family {family.name} has no new variant after {MAX_TRIES} draws; ask for a smaller set")
