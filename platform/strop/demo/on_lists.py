"""Families about a list of whole numbers."""

from strop.demo.kinds import NUMBERS
from strop.demo.variants import Family

FEW = range(2, 5)
MANY = range(3, 50)

FIRST = Family(
    name="first_items",
    takes=NUMBERS,
    functions=("first_{k}", "head", "take_{k}", "top_{k}", "take", "start_of_{x}", "beginning", "prefix"),
    docstrings=(
        "{Return} the first {k} items of {x}.",
        "{Return} the first {k} elements of the list {x}.",
        "Take the first {k} of {x}.",
        "{Return} the beginning of {x}, {k} items long.",
    ),
    constants=FEW,
    reference="{x}[:{k}]",
    answer=lambda x, k: x[:k],
    gives="list[int]",
)
LAST = Family(
    name="last_items",
    takes=NUMBERS,
    functions=("last_{k}", "tail", "final_{k}", "newest", "latest", "end_of_{x}", "suffix", "recent"),
    docstrings=(
        "{Return} the last {k} items of {x}.",
        "{Return} the last {k} elements of the list {x}.",
        "Take the last {k} of {x}.",
        "{Return} the end of {x}, {k} items long.",
    ),
    constants=FEW,
    reference="{x}[-{k}:]",
    answer=lambda x, k: x[-k:],
    gives="list[int]",
)
SKIP = Family(
    name="skip_items",
    takes=NUMBERS,
    functions=("skip_{k}", "drop_{k}", "rest", "after_{k}", "skip", "drop_first", "without_first_{k}", "remaining"),
    docstrings=(
        "{Return} {x} without the first {k} items.",
        "Skip the first {k} items of {x}.",
        "{Return} all items of {x} after the first {k}.",
        "Drop {k} items from the start of {x}.",
    ),
    constants=FEW,
    reference="{x}[{k}:]",
    answer=lambda x, k: x[k:],
    gives="list[int]",
)
DROP_LAST = Family(
    name="drop_last_items",
    takes=NUMBERS,
    functions=("drop_last_{k}", "trim", "all_but_last_{k}", "shorten", "cut_end", "cut_{k}", "without_last_{k}"),
    docstrings=(
        "{Return} {x} without the last {k} items.",
        "Drop the last {k} items of {x}.",
        "{Return} all items of {x} except the last {k}.",
        "Remove {k} items from the end of {x}.",
    ),
    constants=FEW,
    reference="{x}[:-{k}]",
    answer=lambda x, k: x[:-k],
    gives="list[int]",
)
REVERSED = Family(
    name="reversed_list",
    takes=NUMBERS,
    functions=("backwards", "reverse", "flip", "reverse_list", "mirror", "from_the_end", "turn_around", "invert"),
    docstrings=(
        "{Return} {x} in reverse order.",
        "{Return} the list {x} backwards.",
        "{Return} a reversed copy of {x}.",
        "{Return} the items of {x} from last to first.",
        "Reverse {x}.",
    ),
    reference="{x}[::-1]",
    answer=lambda x: x[::-1],
    gives="list[int]",
)
KEEP_ABOVE = Family(
    name="keep_above",
    takes=NUMBERS,
    functions=("above_{k}", "keep_large", "filter_{x}", "over_{k}", "only_big", "high_{x}", "larger_than_{k}"),
    docstrings=(
        "{Return} the items of {x} that are greater than {k}.",
        "Keep only the numbers in {x} above {k}.",
        "{Return} a list of all values in {x} larger than {k}.",
    ),
    constants=MANY,
    reference="[v for v in {x} if v > {k}]",
    answer=lambda x, k: [v for v in x if v > k],
    gives="list[int]",
)
KEEP_BELOW = Family(
    name="keep_below",
    takes=NUMBERS,
    functions=("below_{k}", "keep_small", "filter_{x}", "under_{k}", "only_small", "low_{x}", "smaller_than_{k}"),
    docstrings=(
        "{Return} the items of {x} that are less than {k}.",
        "Keep only the numbers in {x} below {k}.",
        "{Return} a list of all values in {x} smaller than {k}.",
    ),
    constants=MANY,
    reference="[v for v in {x} if v < {k}]",
    answer=lambda x, k: [v for v in x if v < k],
    gives="list[int]",
)
ADD_TO_EACH = Family(
    name="add_to_each",
    takes=NUMBERS,
    functions=("add_{k}_to_all", "shift_all", "raise_all", "increase_{x}", "shift_{x}", "add_to_each", "plus_{k}"),
    docstrings=(
        "{Return} a list with {k} added to every item of {x}.",
        "Add {k} to each number in {x}.",
        "{Return} each item of {x} plus {k}, as a list.",
    ),
    constants=MANY,
    reference="[v + {k} for v in {x}]",
    answer=lambda x, k: [v + k for v in x],
    gives="list[int]",
)
SCALE_EACH = Family(
    name="scale_each",
    takes=NUMBERS,
    functions=("times_{k}", "scale_all", "multiply_all", "scale_{x}", "scale", "multiply_each", "stretch"),
    docstrings=(
        "{Return} a list with every item of {x} multiplied by {k}.",
        "Multiply each number in {x} by {k}.",
        "{Return} each item of {x} times {k}, as a list.",
    ),
    constants=MANY,
    reference="[v * {k} for v in {x}]",
    answer=lambda x, k: [v * k for v in x],
    gives="list[int]",
)
TOTAL = Family(
    name="total",
    takes=NUMBERS,
    functions=("total", "sum_up", "add_all", "sum_{x}", "total_{x}", "sum_list", "overall", "grand_total"),
    docstrings=(
        "{Return} the sum of {x}.",
        "{Return} the total of all numbers in {x}.",
        "Add up all the items of {x}.",
        "{Return} the sum of all items in the list {x}.",
    ),
    reference="sum({x})",
    answer=sum,
    gives="int",
)
TOTAL_PLUS = Family(
    name="total_plus_constant",
    takes=NUMBERS,
    functions=("total_plus_{k}", "sum_and_{k}", "bill", "with_fee", "total_with_extra", "sum_{x}", "final_total"),
    docstrings=(
        "{Return} the sum of {x} plus {k}.",
        "Add {k} to the total of {x}.",
        "{Return} the sum of all items in {x}, increased by {k}.",
    ),
    constants=MANY,
    reference="sum({x}) + {k}",
    answer=lambda x, k: sum(x) + k,
    gives="int",
)
COUNT = Family(
    name="count_value",
    takes=NUMBERS,
    functions=("count_{k}", "how_many_{k}", "occurrences", "count_in_{x}", "frequency", "times_seen", "num_{k}"),
    docstrings=(
        "{Return} how many times {k} occurs in {x}.",
        "Count the {k}s in {x}.",
        "{Return} the number of items in {x} equal to {k}.",
    ),
    constants=MANY,
    reference="{x}.count({k})",
    answer=lambda x, k: x.count(k),
    gives="int",
)
CONTAINS = Family(
    name="contains_value",
    takes=NUMBERS,
    functions=("contains_{k}", "has_{k}", "includes", "is_in_{x}", "has_value", "found", "exists_in_{x}"),
    docstrings=(
        "Return True if {k} is in {x}.",
        "Check whether {x} contains {k}.",
        "{Return} whether the number {k} occurs in {x}.",
    ),
    constants=MANY,
    reference="{k} in {x}",
    answer=lambda x, k: k in x,
    gives="bool",
)
DESCENDING = Family(
    name="sorted_descending",
    takes=NUMBERS,
    functions=("descending", "sort_down", "ranked", "sort_desc", "largest_first", "rank", "order_{x}", "ranking"),
    docstrings=(
        "{Return} {x} sorted from largest to smallest.",
        "{Return} {x} in descending order.",
        "Sort {x} with the largest number first.",
        "{Return} a copy of {x} sorted in reverse.",
    ),
    reference="sorted({x}, reverse=True)",
    answer=lambda x: sorted(x, reverse=True),
    gives="list[int]",
)
SMALLEST = Family(
    name="smallest",
    takes=NUMBERS,
    functions=("smallest", "lowest", "minimum", "cheapest", "least", "min_of_{x}", "find_min", "bottom"),
    docstrings=(
        "{Return} the smallest number in {x}.",
        "{Return} the lowest value of {x}.",
        "{Return} the minimum of the list {x}.",
        "Find the smallest item of {x}.",
    ),
    reference="min({x})",
    answer=min,
    gives="int",
)
SPREAD = Family(
    name="spread",
    takes=NUMBERS,
    functions=("spread", "span", "range_of_{x}", "difference", "extent", "max_gap", "width_of_{x}", "swing"),
    docstrings=(
        "{Return} the difference between the largest and the smallest number in {x}.",
        "{Return} the maximum of {x} minus the minimum of {x}.",
        "{Return} how far apart the highest and the lowest value of {x} are.",
        "Subtract the smallest item of {x} from the largest.",
    ),
    reference="max({x}) - min({x})",
    answer=lambda x: max(x) - min(x),
    gives="int",
)

FAMILIES = (
    FIRST, LAST, SKIP, DROP_LAST, REVERSED, KEEP_ABOVE, KEEP_BELOW, ADD_TO_EACH, SCALE_EACH,
    TOTAL, TOTAL_PLUS, COUNT, CONTAINS, DESCENDING, SMALLEST, SPREAD,
)  # fmt: skip
