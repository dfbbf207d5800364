"""What sways a judge besides the answer: its length, and who wrote it. Pure, from what was judged already."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from evals.statistics.estimate import Estimate, around, unknown
from evals.statistics.means import estimate_mean
from evals.statistics.proportions import Share, wilson

LEAST = 10  # fewer observations make no slope


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthBias:
    """Of a pairwise judge on pairs of unequal length, or of one that marks single answers.

    `slope` is the change of the result (1 for a win, or the mark in [0, 1]) for one unit of tanh(length / its spread),
    where 1 is an answer far longer than usual. A fair judge has a slope too where longer answers are better.
    """

    slope: Estimate
    longer: Share  # decided pairs won by the longer side; without data for single answers


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfPreference:
    """How a judge treats answers of its own family.

    Pairwise: the share of decided pairs of one own side and one other that the own side wins, and the same by the unit
    tests on the very same answers. Single answers: the mean mark of its own and of the others.
    """

    family: str
    own: Share
    own_by_tests: Share
    own_mark: Estimate
    other_mark: Estimate


def length_bias_of_pairs(lengths: Sequence[tuple[int, int]], results: Sequence[float]) -> LengthBias:
    """`lengths` in characters, (left, right); `results` 1 left, .5 neither, 0 right."""
    differences = [float(left - right) for left, right in lengths]
    unequal = [(d, result) for d, result in zip(differences, results, strict=True) if d and result != 0.5]
    return LengthBias(
        slope=_slope(differences, results, centre=0.0),
        longer=wilson(sum((d > 0) == (result == 1) for d, result in unequal), len(unequal)),
    )


def length_bias_of_marks(lengths: Sequence[int], values: Sequence[float]) -> LengthBias:
    """`lengths` of the answers in characters, `values` their marks in [0, 1]."""
    sizes = [float(length) for length in lengths]
    return LengthBias(slope=_slope(sizes, values, centre=fmean(sizes) if sizes else 0.0), longer=wilson(0, 0))


def _slope(sizes: Sequence[float], results: Sequence[float], *, centre: float) -> Estimate:
    """Least squares of the result on tanh((size - centre) / sd), with errors that allow any spread (HC1)."""
    n = len(sizes)
    spread = stdev(sizes) if n > 1 else 0.0
    if n < LEAST:
        return unknown(f"{n} observations; {LEAST} are needed", n=n)
    if spread == 0:
        return unknown("all answers are equally long", n=n)
    x = [math.tanh((size - centre) / spread) for size in sizes]
    middle_x, middle_y = fmean(x), fmean(results)
    centred = [one - middle_x for one in x]
    total = math.fsum(one * one for one in centred)
    if total == 0:
        return unknown("all answers are equally long", n=n)
    slope = math.fsum(one * result for one, result in zip(centred, results, strict=True)) / total
    residuals = [result - middle_y - slope * one for one, result in zip(centred, results, strict=True)]
    squares = math.fsum((one * residual) ** 2 for one, residual in zip(centred, residuals, strict=True))
    se = math.sqrt(squares * n / (n - 2)) / total
    return around(slope, se, n=n, freedom=n - 2)


def family_of(name: str) -> str:
    """Who made it: the policy of a checkpoint, or the first word of a model's name.

    Example: editor@3 -> editor; openai/gpt-5-mini -> gpt; claude-opus-4 -> claude
    """
    policy, at, version = name.rpartition("@")
    if at and version.isdigit():
        return policy
    first = re.match(r"[^\W\d_]+", name.rpartition("/")[2].lower())
    return first[0] if first else name.lower()


def self_preference_of_pairs(
    judge: str, sides: Sequence[tuple[str, str]], results: Sequence[float], by_tests: Sequence[float | None]
) -> SelfPreference:
    """Results and those of the tests are 1 left, .5 neither, 0 right; ties are outside both shares."""
    family = family_of(judge)
    mixed = [
        (left, result, tested)
        for (left, right), result, tested in zip(sides, results, by_tests, strict=True)
        if (family_of(left) == family) != (family_of(right) == family)
    ]
    won = [(result == 1) == (family_of(left) == family) for left, result, _ in mixed if result != 0.5]
    tested_won = [
        (tested == 1) == (family_of(left) == family) for left, _, tested in mixed if tested not in (None, 0.5)
    ]
    return SelfPreference(
        family=family,
        own=wilson(sum(won), len(won)),
        own_by_tests=wilson(sum(tested_won), len(tested_won)),
        own_mark=estimate_mean([]),
        other_mark=estimate_mean([]),
    )


def self_preference_of_marks(judge: str, rated: Sequence[str], values: Sequence[float]) -> SelfPreference:
    family = family_of(judge)
    own = [value for name, value in zip(rated, values, strict=True) if family_of(name) == family]
    others = [value for name, value in zip(rated, values, strict=True) if family_of(name) != family]
    return SelfPreference(
        family=family,
        own=wilson(0, 0),
        own_by_tests=wilson(0, 0),
        own_mark=estimate_mean(own),
        other_mark=estimate_mean(others),
    )
