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

HALF = Family(
    name="half",
    takes=NUMBER,
    functions=(
        "half",
        "halve",
        "half_of_{x}",
        "split_in_two",
        "middle_of_{x}",
        "share",
        "cut_in_half",
        "divide_by_two",
    ),
    docstrings=(
        "{Return} half of {x}.",
        "{Return} {x} divided by 2.",
        "Divide {x} by two.",
        "{Return} the half of {x}.",
        "{Return} one half of the number {x}.",
    ),
    reference="{x} / 2",
    answer=lambda x: x / 2,
    gives="float",
)
EVEN = Family(
    name="even",
    takes=NUMBER,
    functions=("is_even", "even", "check_even", "is_pair", "is_even_{x}", "has_even_{x}", "can_be_halved", "test"),
    docstrings=(
        "Return True if {x} is even.",
        "Check whether {x} is an even number.",
        "{Return} whether {x} is even.",
        "Tell if {x} is even.",
        "{Return} True for an even {x}, otherwise False.",
    ),
    reference="{x} % 2 == 0",
    answer=lambda x: x % 2 == 0,
    gives="bool",
)
ODD = Family(
    name="odd",
    takes=NUMBER,
    functions=("is_odd", "odd", "check_odd", "is_odd_{x}", "is_uneven", "has_odd_{x}", "not_even", "test"),
    docstrings=(
        "Return True if {x} is odd.",
        "Check whether {x} is an odd number.",
        "{Return} whether {x} is odd.",
        "Tell if {x} is odd.",
        "{Return} True for an odd {x}, otherwise False.",
    ),
    reference="{x} % 2 == 1",
    answer=lambda x: x % 2 == 1,
    gives="bool",
)
SUM_OF_TWO = Family(
    name="sum_of_two",
    takes=TWO_NUMBERS,
    functions=("add", "sum_of_two", "plus", "combine", "total", "add_numbers", "sum_up", "together"),
    docstrings=(
        "{Return} the sum of {x} and {y}.",
        "{Return} {x} plus {y}.",
        "Add {x} and {y}.",
        "{Return} {x} and {y} added together.",
        "{Return} the total of {x} and {y}.",
    ),
    reference="{x} + {y}",
    answer=lambda x, y: x + y,
    gives="int",
)
PRODUCT_OF_TWO = Family(
    name="product_of_two",
    takes=TWO_NUMBERS,
    functions=("multiply", "product", "area", "times", "scale", "multiply_numbers", "mul", "grow"),
    docstrings=(
        "{Return} the product of {x} and {y}.",
        "{Return} {x} times {y}.",
        "Multiply {x} by {y}.",
        "{Return} {x} and {y} multiplied.",
        "{Return} {x} multiplied by {y}.",
    ),
    reference="{x} * {y}",
    answer=lambda x, y: x * y,
    gives="int",
)
SMALLER = Family(
    name="smaller_of_two",
    takes=TWO_NUMBERS,
    functions=("smaller", "lower", "min_of_two", "least", "lowest", "cheaper", "get_min", "pick", "bottom"),
    docstrings=(
        "{Return} the smaller of {x} and {y}.",
        "{Return} the lower number, {x} or {y}.",
        "{Return} the minimum of {x} and {y}.",
        "{Return} {x} or {y}, whichever is less.",
        "{Return} the lesser of {x} and {y}.",
    ),
    reference="min({x}, {y})",
    answer=min,
    gives="int",
)

FAMILIES = (
    ADD, SUBTRACT, MULTIPLY, REMAINDER, POWER, ABOVE, AT_MOST, DIVISIBLE, DISTANCE, HALF, EVEN, ODD, SUM_OF_TWO,
    PRODUCT_OF_TWO, LARGER, SMALLER,
)  # fmt: skip
