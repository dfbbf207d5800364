"""Families about a text."""

from strop.demo.kinds import TEXT
from strop.demo.variants import Family

ENDS = ("!", "?", "...", "-", "_", "#", "*", "+", "/", "~", ">", "=", "$", "%", "&", "@")

UPPER = Family(
    name="upper_case",
    takes=TEXT,
    functions=("upper", "shout", "to_upper", "capitals", "make_loud", "uppercase_{x}", "big_letters", "yell"),
    docstrings=(
        "{Return} {x} in upper case.",
        "{Return} {x} in capital letters.",
        "Convert {x} to uppercase.",
        "{Return} {x} with all letters capitalized.",
    ),
    reference="{x}.upper()",
    answer=str.upper,
    gives="str",
)
LOWER = Family(
    name="lower_case",
    takes=TEXT,
    functions=("lower", "whisper", "to_lower", "small_letters", "calm", "lowercase_{x}", "normalize", "quiet"),
    docstrings=(
        "{Return} {x} in lower case.",
        "{Return} {x} in small letters.",
        "Convert {x} to lowercase.",
        "{Return} {x} without capital letters.",
    ),
    reference="{x}.lower()",
    answer=str.lower,
    gives="str",
)
APPEND = Family(
    name="append_text",
    takes=TEXT,
    functions=("append", "add_mark", "finish", "add_end", "mark_{x}", "with_suffix", "decorate", "close"),
    docstrings=(
        "{Return} {x} followed by {k}.",
        "Append {k} to {x}.",
        "{Return} {x} with {k} at the end.",
        "Add {k} to the end of {x}.",
    ),
    constants=ENDS,
    reference="{x} + {k}",
    answer=lambda x, k: x + k,
    gives="str",
)
REPEAT = Family(
    name="repeat_text",
    takes=TEXT,
    functions=("repeat", "repeat_{k}", "echo", "times_{k}", "multiply_{x}", "copies", "again"),
    docstrings=("{Return} {x} repeated {k} times.", "Repeat {x} {k} times.", "{Return} {k} copies of {x} in a row."),
    constants=range(2, 13),
    reference="{x} * {k}",
    answer=lambda x, k: x * k,
    gives="str",
)
STARTS = Family(
    name="starts_with",
    takes=TEXT,
    functions=("starts_with", "begins", "has_prefix", "is_command", "check_start", "is_marked", "matches"),
    docstrings=(
        "Return True if {x} starts with {k}.",
        "Check whether {x} begins with {k}.",
        "{Return} whether the first characters of {x} are {k}.",
    ),
    constants=ENDS,
    reference="{x}.startswith({k})",
    answer=lambda x, k: x.startswith(k),
    gives="bool",
)
ENDS_WITH = Family(
    name="ends_with",
    takes=TEXT,
    functions=("ends_with", "has_suffix", "is_finished", "check_end", "has_ending", "is_closed", "finishes"),
    docstrings=(
        "Return True if {x} ends with {k}.",
        "Check whether {x} ends in {k}.",
        "{Return} whether the last characters of {x} are {k}.",
    ),
    constants=ENDS,
    reference="{x}.endswith({k})",
    answer=lambda x, k: x.endswith(k),
    gives="bool",
)
BACKWARDS = Family(
    name="reversed_text",
    takes=TEXT,
    functions=("backwards", "reverse", "mirror", "reverse_{x}", "flip", "spell_backwards", "turn", "inverse"),
    docstrings=(
        "{Return} {x} backwards.",
        "{Return} {x} reversed.",
        "{Return} the characters of {x} in reverse order.",
        "Spell {x} from the end to the start.",
        "Reverse the text {x}.",
    ),
    reference="{x}[::-1]",
    answer=lambda x: x[::-1],
    gives="str",
)
LONGER = Family(
    name="longer_than",
    takes=TEXT,
    functions=("longer_than_{k}", "is_long", "too_long", "exceeds_{k}", "is_long_{x}", "over_{k}", "check_length"),
    docstrings=(
        "Return True if {x} has more than {k} characters.",
        "Check whether {x} is longer than {k}.",
        "{Return} whether the length of {x} is above {k}.",
    ),
    constants=range(6, 21),
    reference="len({x}) > {k}",
    answer=lambda x, k: len(x) > k,
    gives="bool",
)

STRIP = Family(
    name="strip_spaces",
    takes=TEXT,
    functions=("strip", "trim", "clean", "clean_{x}", "tidy", "remove_spaces", "trim_{x}", "without_padding"),
    docstrings=(
        "{Return} {x} without leading and trailing spaces.",
        "Strip the whitespace from both ends of {x}.",
        "{Return} {x} with surrounding whitespace removed.",
        "Remove spaces at the start and end of {x}.",
        "{Return} {x} stripped of whitespace.",
    ),
    reference="{x}.strip()",
    answer=str.strip,
    gives="str",
)
TITLE = Family(
    name="title_case",
    takes=TEXT,
    functions=("title", "title_case", "to_title", "headline", "capitalize_words", "heading", "title_{x}", "as_title"),
    docstrings=(
        "{Return} {x} in title case.",
        "Convert {x} to title case.",
        "{Return} {x} as a title.",
        "{Return} {x} with every word capitalized.",
        "Capitalize each word of {x}.",
    ),
    reference="{x}.title()",
    answer=str.title,
    gives="str",
)

FAMILIES = (
    UPPER, LOWER, TITLE, STRIP, APPEND, REPEAT, STARTS, ENDS_WITH, BACKWARDS, LONGER,
)  # fmt: skip
