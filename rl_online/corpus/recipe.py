"""What is made of a folder: the options of a corpus, checked before any work."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rl_online.corpus.errors import UnusableRecipe
from rl_online.corpus.languages import LANGUAGES


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Equal sources and equal recipes make equal corpora."""

    languages: tuple[str, ...] = ()  # to take; empty: all that are known
    row_tokens: int = 1024  # most tokens of a row; longer documents are cut
    shard_tokens: int = 1 << 20  # after so many a shard is written: what memory must hold at once
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

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Recipe":
        """Missing options take their default. Raises UnusableRecipe for an unknown option, a wrong type or value."""
        defaults = cls().to_json()
        for name, value in values.items():
            if name not in defaults:
                raise UnusableRecipe(f"{name} is not an option of a corpus; known are {', '.join(defaults)}")
            wanted = (int, float) if isinstance(defaults[name], float) else type(defaults[name])
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise UnusableRecipe(f"{name} is {value!r}; it must be {type(defaults[name]).__name__}")
        parsed: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**parsed)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()
