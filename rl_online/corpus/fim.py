"""Fill-in-the-middle: a document with a span moved behind what follows it, so that a model learns to fill gaps.

Bavarian et al., arXiv 2207.14255: two cuts at random characters, PSM and SPM in equal parts, applied to what fits into
a row (their "context level"), where nothing of the three parts is cut off.
"""

import random
from dataclasses import dataclass

from rl_online.corpus.errors import UnusableRecipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """A text in three parts; together they are the text. Any may be empty."""

    prefix: str
    middle: str
    suffix: str

    @property
    def text(self) -> str:
        return self.prefix + self.middle + self.suffix


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentinels:
    """The tokens that say which part follows."""

    prefix: int
    suffix: int
    middle: int


KNOWN = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    ("[PREFIX]", "[SUFFIX]", "[MIDDLE]"),  # Codestral
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM-4
)


def sentinels_of(vocabulary: dict[str, int], asked: tuple[str, ...]) -> Sentinels:
    """The tokens asked for, else the family that the vocabulary has whole. Raises UnusableRecipe where it has none."""
    families = (asked,) if asked else KNOWN
    for names in families:
        if all(name in vocabulary for name in names):
            prefix, suffix, middle = (vocabulary[name] for name in names)
            return Sentinels(prefix=prefix, suffix=suffix, middle=middle)
    if asked:
        missing = ", ".join(name for name in asked if name not in vocabulary)
        raise UnusableRecipe(f"fim_tokens names {missing}, which this tokenizer does not have as one token")
    raise UnusableRecipe(
        "fim is above 0, but this policy's tokenizer has no fill-in-the-middle tokens "
        f"(looked for {', '.join(names[0] for names in KNOWN)}); set fim to 0, "
        "or name three tokens it never writes with fim_tokens prefix,suffix,middle"
    )


def cut(text: str, chance: random.Random) -> Gap:
    start, end = sorted(chance.randint(0, len(text)) for _ in range(2))
    return Gap(prefix=text[:start], middle=text[start:end], suffix=text[end:])


def arranged(
    prefix: list[int], middle: list[int], suffix: list[int], to: Sentinels, *, suffix_first: bool
) -> list[int]:
    """The tokens of the three parts in PSM order, or in SPM order where the prefix and the middle run on as one.

    Example: PSM `P a b S e f M c d`, SPM `P S e f M a b c d`
    """
    if suffix_first:
        return [to.prefix, to.suffix, *suffix, to.middle, *prefix, *middle]
    return [to.prefix, *prefix, to.suffix, *suffix, to.middle, *middle]
