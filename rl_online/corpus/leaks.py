"""Whether a document holds a benchmark's problem: what was trained on measures nothing afterwards.

The rule is that of evals.overlap: a problem is there when half its n-grams are.
"""

import hashlib
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from evals.overlap import METHOD, SHARE, Text, share_in


class Problems:
    """The hashes of all problems, sorted so that a document is looked up in them by bisection."""

    def __init__(self, texts: Iterable[Text]) -> None:
        self._texts = [text for text in texts if text.num_words]
        self._wholes = {text.whole for text in self._texts}
        every = np.concatenate([np.empty(0, np.uint64), *(text.grams for text in self._texts)])
        owners = np.repeat(np.arange(len(self._texts)), [len(text.grams) for text in self._texts])
        order = np.argsort(every, kind="stable")
        self._grams, self._owners = every[order], owners[order]

    def __len__(self) -> int:
        return len(self._texts)

    @cached_property
    def digest(self) -> str:
        """Of all problems, in whatever order they came."""
        rows = sorted(text.whole.to_bytes(8, signed=True) + text.grams.tobytes() for text in self._texts)
        return hashlib.sha256(b"\0".join([METHOD.encode(), *rows])).hexdigest()

    def leak_into(self, document: Text) -> bool:
        if document.num_words and document.whole in self._wholes:
            return True
        grams = np.unique(document.grams)
        first, last = np.searchsorted(self._grams, grams, "left"), np.searchsorted(self._grams, grams, "right")
        hits = last > first
        likely = {
            int(owner) for start, end in zip(first[hits], last[hits], strict=True) for owner in self._owners[start:end]
        }
        return any(share_in(text, np.isin(text.grams, grams)) >= SHARE for text in map(self._texts.__getitem__, likely))
