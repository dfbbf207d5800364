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

LARGEST = Family(
    name="largest",
    takes=NUMBERS,
    functions=("largest", "highest", "maximum", "most_expensive", "peak", "max_of_{x}", "find_max", "top"),
    docstrings=(
        "{Return} the largest number in {x}.",
        "{Return} the highest value of {x}.",
        "{Return} the maximum of the list {x}.",
        "Find the largest item of {x}.",
    ),
    reference="max({x})",
    answer=max,
    gives="int",
)
LENGTH = Family(
    name="length",
    takes=NUMBERS,
    functions=("length", "count", "how_many", "size_of_{x}", "num_items", "count_{x}", "number_of_items", "len_of_{x}"),
    docstrings=(
        "{Return} the number of items in {x}.",
        "{Return} the length of {x}.",
        "Count the items of {x}.",
        "{Return} how many elements the list {x} has.",
    ),
    reference="len({x})",
    answer=len,
    gives="int",
)

FAMILIES = (
    FIRST, LAST, DROP_LAST, REVERSED, TOTAL, CONTAINS, DESCENDING, SMALLEST, LARGEST, SPREAD, LENGTH,
)  # fmt: skip
