"""Families about one or two whole numbers."""

from strop.demo.kinds import NUMBER, TWO_NUMBERS
from strop.demo.variants import Family

SMALL = range(2, 13)
MANY = range(3, 60)

ADD = Family(
    name="add_constant",
    takes=NUMBER,
    functions=("add_{k}", "plus_{k}", "increase_by_{k}", "raise_{x}", "bump", "add_bonus", "next_{x}", "shift"),
    docstrings=(
        "{Return} {x} plus {k}.",
        "Add {k} to {x}.",
        "{Return} the sum of {x} and {k}.",
        "Increase {x} by {k}.",
    ),
    constants=MANY,
    reference="{x} + {k}",
    answer=lambda x, k: x + k,
    gives="int",
)
SUBTRACT = Family(
    name="subtract_constant",
    takes=NUMBER,
    functions=("minus_{k}", "subtract_{k}", "lower_by_{k}", "reduce_{x}", "take_away", "discount", "without_fee"),
    docstrings=(
        "{Return} {x} minus {k}.", "Subtract {k} from {x}.", "Take {k} away from {x}.", "Decrease {x} by {k}.",
    ),
    constants=MANY,
    reference="{x} - {k}",
    answer=lambda x, k: x - k,
    gives="int",
)  # fmt: skip
MULTIPLY = Family(
    name="multiply_by_constant",
    takes=NUMBER,
    functions=("times_{k}", "multiply_by_{k}", "scale", "scale_{x}", "grow", "in_packs", "total_{x}"),
    docstrings=("{Return} {k} times {x}.", "Multiply {x} by {k}.", "{Return} the product of {x} and {k}."),
    constants=MANY,
    reference="{x} * {k}",
    answer=lambda x, k: x * k,
    gives="int",
)
REMAINDER = Family(
    name="remainder",
    takes=NUMBER,
    functions=("mod_{k}", "remainder", "rest_of_{x}", "left_over", "modulo_{k}", "wrap_{x}"),
    docstrings=(
        "{Return} the remainder of {x} divided by {k}.",
        "{Return} {x} modulo {k}.",
        "{Return} what is left when {x} is divided by {k}.",
    ),
    constants=SMALL,
    reference="{x} % {k}",
    answer=lambda x, k: x % k,
    gives="int",
)
POWER = Family(
    name="power",
    takes=NUMBER,
    functions=("power_{k}", "to_the_{k}", "raise_to", "pow_{x}", "power", "exponent_{k}"),
    docstrings=("{Return} {x} to the power of {k}.", "Raise {x} to the power {k}.", "{Return} {x} raised to {k}."),
    constants=range(2, 7),
    reference="{x} ** {k}",
    answer=lambda x, k: x**k,
    gives="int",
)
ABOVE = Family(
    name="above_constant",
    takes=NUMBER,
    functions=("above_{k}", "is_above", "exceeds_{k}", "is_large", "over_limit", "is_big_{x}", "passes"),
    docstrings=(
        "Return True if {x} is greater than {k}.",
        "Check whether {x} is above {k}.",
        "{Return} whether {x} is more than {k}.",
        "Tell if {x} exceeds {k}.",
    ),
    constants=MANY,
    reference="{x} > {k}",
    answer=lambda x, k: x > k,
    gives="bool",
)
AT_MOST = Family(
    name="at_most_constant",
    takes=NUMBER,
    functions=("at_most_{k}", "fits", "is_allowed", "within_limit", "is_small", "up_to_{k}", "is_valid_{x}"),
    docstrings=(
        "Return True if {x} is at most {k}.",
        "Check whether {x} is {k} or less.",
        "{Return} whether {x} is not greater than {k}.",
        "Tell if {x} is less than or equal to {k}.",
    ),
    constants=MANY,
    reference="{x} <= {k}",
    answer=lambda x, k: x <= k,
    gives="bool",
)
DIVISIBLE = Family(
    name="divisible",
    takes=NUMBER,
    functions=("divisible_by_{k}", "is_multiple_of_{k}", "is_divisible", "check_{x}", "divides", "fits_{k}"),
    docstrings=(
        "Return True if {x} is divisible by {k}.",
        "Check whether {x} is a multiple of {k}.",
        "{Return} whether {k} divides {x} without remainder.",
    ),
    constants=SMALL,
    reference="{x} % {k} == 0",
    answer=lambda x, k: x % k == 0,
    gives="bool",
)
CAP = Family(
    name="cap",
    takes=NUMBER,
    functions=("cap_{x}", "cap_at_{k}", "limit", "limit_{x}", "clip_high", "no_more_than_{k}"),
    docstrings=(
        "{Return} {x}, but at most {k}.",
        "{Return} the smaller of {x} and {k}.",
        "Limit {x} to a maximum of {k}.",
    ),
    constants=MANY,
    reference="min({x}, {k})",
    answer=lambda x, k: min(x, k),
    gives="int",
)
DISTANCE = Family(
    name="distance_to_constant",
    takes=NUMBER,
    functions=("distance_to_{k}", "gap_to_{k}", "error", "off_by", "how_far", "deviation_of_{x}"),
    docstrings=(
        "{Return} the absolute difference between {x} and {k}.",
        "{Return} the distance of {x} from {k}.",
        "{Return} how far {x} is from {k}.",
    ),
    constants=MANY,
    reference="abs({x} - {k})",
    answer=lambda x, k: abs(x - k),
    gives="int",
)
LARGER = Family(
    name="larger_of_two",
    takes=TWO_NUMBERS,
    functions=("larger", "bigger", "max_of_two", "largest", "upper", "best", "winner", "pick", "get_max"),
    docstrings=(
        "{Return} the larger of {x} and {y}.",
        "{Return} the bigger number, {x} or {y}.",
        "{Return} the maximum of {x} and {y}.",
        "{Return} {x} or {y}, whichever is greater.",
        "{Return} the greater of {x} and {y}.",
    ),
    reference="max({x}, {y})",
    answer=max,
    gives="int",
)

FAMILIES = (
    ADD, SUBTRACT, MULTIPLY, REMAINDER, POWER, ABOVE, AT_MOST, DIVISIBLE, CAP, DISTANCE, LARGER,
)  # fmt: skip
