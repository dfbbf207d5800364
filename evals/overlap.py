"""How much of one text stands in another: whether two problems are nearly the same, or training has seen one. Pure.

Two texts are the same when their words are: the case, punctuation, spacing and Unicode form of a copy tell nothing. How
much of a problem stands in another text is the share of its n-grams of words that are found there, with n = 13 for
problems of 26 words or more and n = 8 for shorter ones, as Brown et al. (arXiv 2005.14165, appendix C: 13, and as few
as 8 where texts are short); below 8 words only the whole text can be the same. From `SHARE` on a problem counts as
seen, between the shares that Touvron et al. (arXiv 2307.09288, appendix A.6) call clean (below .2) and dirty (from .8).

Kept of a text are the hashes of its 8-grams alone: a 13-gram is there when the six 8-grams in it are.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORT, LONG = 8, 13  # words of an n-gram
LONG_FROM = 2 * LONG  # words of a problem from which the long ones count
SHARE = 0.5
# An n-gram in more conversations of a batch is the product's own wording (Brown et al.: 10), and counts for nothing.
COMMON = 10
MAX_WORDS = 20_000  # of a text; the rest is not looked at, unless a caller bounds its texts itself
METHOD = "words-8-13/1"  # stored with hashes: those of another method are not compared with these
# Stored with what was found: what another rule found is looked for again. Count up the last number where the code
# decides otherwise on the same hashes.
RULE = f"{METHOD}:{SHARE:g}:{COMMON}:2"

Grams = NDArray[np.uint64]

# A letter of a script that writes no spaces is a word of its own.
_ALONE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")
_PRIME = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Text:
    """What is kept of a text in order to compare it."""

    num_words: int
    whole: int  # hash of all its words, a signed 64-bit number; 0 for a text without a word
    grams: Grams  # hashes of its 8-grams in their order; empty below 8 words


def hashed(text: str, *, max_words: int = MAX_WORDS) -> Text:
    """Example: "Hello,  World" and "hello world" are the same text."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())[:max_words]
    if not words:
        return Text(0, 0, np.empty(0, np.uint64))
    whole = int.from_bytes(
        blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True
    )
    return Text(len(words), whole, _grams(np.fromiter(map(_hash_of, words), np.uint64, len(words))))


def asked_text(prompt: str | None, messages: Sequence[Mapping[str, Any]] | None) -> str:
    """What is compared of a question: the raw prompt, or the chat without its system messages, which all share."""
    if prompt is not None:
        return prompt
    said = [message.get("content") for message in messages or () if message.get("role") != "system"]
    return "\n".join(text for text in said if isinstance(text, str))


def share_in(problem: Text, found: NDArray[np.bool_]) -> float:
    """The share of a problem's n-grams that stand in another text; `found` says which of its 8-grams do.

    Example: 20 words of which the first 14 stand there -> 7 of 13 8-grams, .538
    """
    if not len(found):
        return 0.0
    run = LONG - SHORT + 1 if problem.num_words >= LONG_FROM else 1
    whole = np.convolve(found, np.ones(run, np.int64), "valid") == run
    return float(whole.mean())


def shared(problem: Text, other: Text) -> float:
    """1 for the same text, else the share of the problem's n-grams in the other one."""
    if problem.num_words and problem.whole == other.whole:
        return 1.0
    return share_in(problem, np.isin(problem.grams, other.grams))


def nearest(problem: Text, others: Iterable[tuple[int, Text]]) -> tuple[int, float] | None:
    """(key, share) of the text that holds most of the problem, or that the problem holds most of; None below SHARE."""
    best: tuple[int, float] | None = None
    for key, other in others:
        share = max(shared(problem, other), shared(other, problem))
        if share >= SHARE and (best is None or share > best[1]):
            best = key, share
    return best


def common(samples: Sequence[Grams]) -> Grams:
    """N-grams that stand in more than COMMON of these texts: the wording all of them share, sorted."""
    if len(samples) <= COMMON:
        return np.empty(0, np.uint64)
    values, counts = np.unique(np.concatenate([np.unique(one) for one in samples]), return_counts=True)
    return values[counts > COMMON]


def _grams(words: Grams) -> Grams:
    if len(words) < SHORT:
        return np.empty(0, np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(words, SHORT)
    total = np.zeros(len(windows), np.uint64)
    for place in range(SHORT):
        total = _mixed(total * _PRIME + windows[:, place])
    return total


def _mixed(values: Grams) -> Grams:
    """Every bit of the result depends on all of the value's."""
    values = (values ^ (values >> np.uint64(32))) * _PRIME
    return values ^ (values >> np.uint64(29))


@lru_cache(maxsize=65_536)
def _hash_of(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest())
