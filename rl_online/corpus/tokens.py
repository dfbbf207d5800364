"""A policy's tokenizer as the corpus needs it, without torch: text to pieces that fit a row."""

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_online.corpus import fim
from rl_online.corpus.errors import UnusableRecipe, UnusableSource
from rl_online.corpus.recipe import Recipe

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
END_OF_TEXT = "<|endoftext|>"  # preferred: the end token of a chat model ends a turn, not a document
FIM_SPARE = 16  # places a row keeps free: three sentinels, and a word cut in two takes more tokens than whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """As much of a document as fits into one row."""

    token_ids: list[int]
    fim: str = ""  # psm or spm; empty: as it was written


class Cutter:
    """Turns documents into pieces, by the tokenizer in a checkpoint's folder."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        """Raises UnusableSource without a fast tokenizer, UnusableRecipe for tokens that it does not have."""
        file = folder / TOKENIZER
        if not file.is_file():
            raise UnusableSource(f"the checkpoint has no {TOKENIZER}; a corpus needs a fast tokenizer")
        from tokenizers import Tokenizer  # a tenth of a second that whoever only lists corpora does not need

        data = file.read_bytes()
        self.digest = hashlib.sha256(data).hexdigest()
        self._recipe = recipe
        self._tokenizer = Tokenizer.from_str(data.decode())
        self._tokenizer.encode_special_tokens = True  # what a document says is text, never a command to the model
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab()
        self._end = _end_token(vocabulary, folder / SETTINGS, recipe.end_token)
        self._sentinels = fim.sentinels_of(vocabulary, recipe.fim_tokens) if recipe.fim else None

    def pieces(self, text: str, name: str) -> list[Piece]:
        """`name` decides, with the recipe's seed, which pieces have their middle moved and where they are cut."""
        recipe = self._recipe
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids, offsets = encoding.ids, encoding.offsets
        room = recipe.row_tokens - 1 - (FIM_SPARE if self._sentinels else 0)
        pieces: list[Piece] = []
        for part, start in enumerate(range(0, len(ids), room)):
            end = min(start + room, len(ids))
            chance = random.Random(f"{recipe.seed}:{name}:{part}")
            is_last = end == len(ids)
            moved = None
            if self._sentinels and chance.random() < recipe.fim:
                moved = self._moved(text[_from(offsets, start) : _from(offsets, end, len(text))], chance)
            pieces.append(moved or Piece(token_ids=ids[start:end] + ([self._end] if is_last else [])))
        return pieces

    def _moved(self, text: str, chance: random.Random) -> Piece | None:
        """None where the cuts make it too long for a row."""
        assert self._sentinels is not None
        gap = fim.cut(text, chance)
        suffix_first = chance.random() < self._recipe.fim_spm
        prefix, middle, suffix = (
            self._tokenizer.encode(part, add_special_tokens=False).ids for part in (gap.prefix, gap.middle, gap.suffix)
        )
        ids = [*fim.arranged(prefix, middle, suffix, self._sentinels, suffix_first=suffix_first), self._end]
        if len(ids) > self._recipe.row_tokens:
            return None
        return Piece(token_ids=ids, fim="spm" if suffix_first else "psm")


def _from(offsets: list[tuple[int, int]], token: int, end: int = 0) -> int:
    """Where the text of a token begins; the parts between such places are the whole text."""
    if token == 0:
        return 0
    return offsets[token][0] if token < len(offsets) else end


def _end_token(vocabulary: dict[str, int], settings: Path, asked: str) -> int:
    own: Any = json.loads(settings.read_bytes()).get("eos_token") if settings.is_file() else None
    own = own.get("content") if isinstance(own, dict) else own
    for name in [asked] if asked else [END_OF_TEXT, own]:
        if name in vocabulary:
            return vocabulary[name]
    if asked:
        raise UnusableRecipe(f"end_token is {asked!r}, which this tokenizer does not have")
    raise UnusableRecipe("this tokenizer names no end token; name one of its tokens with end_token")
