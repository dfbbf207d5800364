"""What the demo's functions take: a number, two numbers, a list of numbers, a text."""

from random import Random
from typing import Any

from strop.demo.variants import Arguments, Kind

NOUNS = (
    "river",
    "Stone",
    "apple",
    "Lamp",
    "cloud",
    "paper",
    "Violin",
    "salt",
    "north",
    "pear",
    "Anna",
    "level",
    "noon",
)


def _near(rng: Random, constant: Any) -> int:
    """Often the constant itself or its neighbour: that is where comparisons go wrong."""
    if isinstance(constant, int) and rng.random() < 0.8:
        return constant + rng.choice((-1, 0, 1, constant))
    return rng.randint(-12, 60)


def _number(rng: Random, constant: Any) -> Arguments:
    return [_near(rng, constant)]


def _two_numbers(rng: Random, constant: Any) -> Arguments:
    return [_near(rng, constant), _near(rng, constant)]


def _numbers(rng: Random, constant: Any) -> Arguments:
    return [[_near(rng, constant) for _ in range(rng.randint(5, 9))]]


def _text(rng: Random, constant: Any) -> Arguments:
    """A few words, sometimes padded, beginning or ending with the constant, or just as long as it says."""
    text = rng.choice((" ", " ", "-", ",")).join(rng.sample(NOUNS, rng.randint(1, 4)))
    if isinstance(constant, int) and rng.random() < 0.6:
        return [(text * 9)[: constant + rng.randint(0, 1)]]
    extra = constant if isinstance(constant, str) else " "
    return [rng.choice((text, text, extra + text, text + extra, extra + text + extra, text[::-1].lower()))]


def _each(*names: str) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names)


NUMBER = Kind(
    names=_each("n", "x", "value", "number", "num", "amount", "score", "total", "size", "level", "points", "i"),
    hint="int",
    draw=_number,
)
TWO_NUMBERS = Kind(
    names=(
        ("a", "b"), ("x", "y"), ("first", "second"), ("left", "right"), ("n", "m"), ("start", "end"), ("low", "high"),
        ("old", "new"), ("width", "height"), ("p", "q"), ("one", "other"), ("price", "cost"),
    ),
    hint="int",
    draw=_two_numbers,
)  # fmt: skip
NUMBERS = Kind(
    names=_each("numbers", "values", "items", "nums", "data", "scores", "xs", "prices", "points", "sizes", "a", "row"),
    hint="list[int]",
    draw=_numbers,
)
TEXT = Kind(
    names=_each("text", "s", "string", "word", "name", "line", "title", "message", "phrase", "label", "content", "t"),
    hint="str",
    draw=_text,
)
