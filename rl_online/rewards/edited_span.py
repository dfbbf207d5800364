"""Which tokens of an edited answer are the user's. Pure."""

from collections.abc import Sequence
from difflib import SequenceMatcher


def edited_tokens(original: Sequence[int], edited: Sequence[int]) -> list[int]:
    """Along `edited`: 1 for a token that the original has not at its place, and for the one behind a deletion.

    What follows a deletion is what should have come instead; the rest the policy says already. Both are token ids of
    the same tokenizer. All 0 where nothing was changed, or only the end was cut off.

    Example: original [1, 2, 3, 4], edited [1, 9, 3, 5, 4]: [0, 1, 0, 1, 0]. Edited [1, 4]: [0, 1].
    """
    start = _num_alike(original, edited)
    end = _num_alike(original[start:][::-1], edited[start:][::-1])
    was, became = original[start : len(original) - end], edited[start : len(edited) - end]
    marks = [0] * len(edited)
    for tag, _, _, first, last in SequenceMatcher(a=was, b=became, autojunk=False).get_opcodes():
        if tag in ("replace", "insert"):
            marks[start + first : start + last] = [1] * (last - first)
        elif tag == "delete" and start + first < len(edited):
            marks[start + first] = 1
    return marks


def _num_alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with. The matcher looks for long pieces first, and misses these where text repeats."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
