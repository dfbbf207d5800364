"""What is made of a folder: the options of a corpus, checked before any work."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from rl_online.corpus.errors import UnusableRecipe
from rl_online.corpus.languages import LANGUAGES


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Equal sources and equal recipes make equal corpora."""

    languages: tuple[str, ...] = ()  # to take; empty: all that are known
    row_tokens: int = 1024  # most tokens of a row; longer documents are cut
    shard_tokens: int = 4 << 20  # after so many a shard is written: what memory must hold at once
    fim: float = 0.0  # share of pieces turned into fill-in-the-middle
    fim_spm: float = 0.5  # share of those with the suffix first
    fim_tokens: tuple[str, ...] = ()  # prefix, suffix and middle; empty: those that the tokenizer is known by
    end_token: str = ""  # after a document; empty: the tokenizer's own
    heldout: int = 8  # documents of each language set aside, of at most one in twenty
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises UnusableRecipe naming the option and what would be right."""
        if unknown := sorted(set(self.languages) - LANGUAGES):
            raise UnusableRecipe(f"languages names {', '.join(unknown)}; known are {', '.join(sorted(LANGUAGES))}")
        for name in ("fim", "fim_spm"):
            if not 0 <= getattr(self, name) <= 1:
                raise UnusableRecipe(f"{name} is {getattr(self, name)}; it is a share, from 0 to 1")
        if not 16 <= self.row_tokens <= self.shard_tokens:
            raise UnusableRecipe(f"row_tokens is {self.row_tokens}; it must be 16 to shard_tokens {self.shard_tokens}")
        if self.fim_tokens and len(set(self.fim_tokens)) != 3:
            raise UnusableRecipe("fim_tokens must be three different tokens: prefix,suffix,middle")
        if self.heldout < 0:
            raise UnusableRecipe(f"heldout is {self.heldout}; it must be at least 0")

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()
