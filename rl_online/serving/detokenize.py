"""Token ids to text while they arrive: whole characters only, and nothing that may still become a stop string.

Not here: which token ends a completion (serving.decoding) and turning text into ids (the tokenizer does).
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

MAX_HELD_TOKENS = 8  # a character has at most 4 bytes, so more tokens that end in U+FFFD are really broken text


def byte_alphabet() -> dict[str, int]:
    """The letters by which byte-level BPE writes the 256 bytes (GPT-2's table): printable ones stand for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


class Vocabulary:
    """The text side of a tokenizer: what each id means, and streams of text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special_ids = set(tokenizer.all_special_ids) | {
            token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special
        }

    @cached_property
    def token_bytes(self) -> list[bytes] | None:
        """The bytes of every id, b"" for special ones; None when the tokenizer is not byte-level BPE."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or (json.loads(backend.to_str())["decoder"] or {}).get("type") != "ByteLevel":
            return None
        alphabet = byte_alphabet()
        added = self.tokenizer.added_tokens_decoder
        table = []
        for token_id, token in enumerate(self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))):
            if token is None or token_id in self.special_ids:
                table.append(b"")
            elif token_id in added or any(letter not in alphabet for letter in token):
                table.append(token.encode())
            else:
                table.append(bytes(alphabet[letter] for letter in token))
        return table

    def bytes_of(self, token_id: int) -> bytes:
        """Exact bytes of one token; b"" for a special one and for an id beyond the tokenizer's vocabulary."""
        if self.token_bytes is not None:
            return self.token_bytes[token_id] if token_id < len(self.token_bytes) else b""
        return b"" if token_id in self.special_ids else self.tokenizer.decode([token_id]).encode()

    def name_of(self, token_id: int) -> str:
        """How a token is shown: its text, or the name of a special token."""
        if token_id in self.special_ids:
            return self.tokenizer.convert_ids_to_tokens(token_id)
        return self.bytes_of(token_id).decode(errors="replace")

    def stream(self) -> TextStream:
        return ByteText(self) if self.token_bytes is not None else WindowText(self)


class TextStream(Protocol):
    def push(self, token_id: int) -> str:
        """The characters that became whole with this token."""
        ...


class ByteText:
    """Exact and cheap: bytes from a table into an incremental UTF-8 decoder."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._bytes_of = vocabulary.bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        return self._decoder.decode(self._bytes_of(token_id))


class WindowText:
    """For every other tokenizer: decode a short window with and without the new tokens and take the difference."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._decode = vocabulary.tokenizer.decode
        self._special_ids = vocabulary.special_ids
        self._settled: list[int] = []  # shown last; they give the next tokens their context
        self._held: list[int] = []  # not shown yet

    def push(self, token_id: int) -> str:
        if token_id in self._special_ids:
            return ""
        self._held.append(token_id)
        before, after = self._decode(self._settled), self._decode(self._settled + self._held)
        if after.endswith("\ufffd") and len(self._held) < MAX_HELD_TOKENS:
            return ""
        self._settled, self._held = self._held, []
        return after[len(before) :]


@dataclass(frozen=True, slots=True)
class Cut:
    """What may be shown now, and the stop string that ended the text (None: it goes on)."""

    text: str
    stop: str | None = None


class StopCutter:
    """Holds back what may still turn out to begin a stop string; cuts the text before the first one that appears."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> Cut:
        if not self._stops:
            return Cut(text)
        seen = self._held + text
        found = min(((seen.find(stop), -len(stop), stop) for stop in self._stops if stop in seen), default=None)
        if found is not None:
            self._held = ""
            return Cut(seen[: found[0]], found[2])
        keep = max(overlap(seen, stop) for stop in self._stops)
        self._held = seen[len(seen) - keep :]
        return Cut(seen[: len(seen) - keep])

    def flush(self) -> str:
        """The text held back, once it is certain that no more comes."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning, but not all, of `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
