"""What a record of somebody else's file looks like when it is kept: storable, and not larger than MAX_BYTES."""

import math
from typing import Any

import msgspec

MAX_BYTES = 1024**2  # of one record as JSON
MAX_DEPTH = 60
LEFT_OUT = "$left_out"  # in a record that was too large: field -> its bytes
TOO_DEEP = "nested too deep to be kept"
NUL, NUL_SYMBOL = "\x00", "\N{SYMBOL FOR NULL}"


def storable(value: Any, *, levels: int = MAX_DEPTH) -> Any:
    """The same value as PostgreSQL can hold it: no NUL, no half surrogate pair, no NaN, no endless depth."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict | list) and not levels:
        return TOO_DEEP
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(below, levels=levels - 1) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [storable(below, levels=levels - 1) for below in value]
    return value


def storable_text(text: str) -> str:
    if text.isascii() and NUL not in text:
        return text
    return text.replace(NUL, NUL_SYMBOL).encode(errors="replace").decode()


def fitted(record: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """(the record as it is kept, whether fields were left out because it was too large, the largest first)."""
    kept = storable(record)
    if _size(kept) <= MAX_BYTES:
        return kept, False
    sizes = {name: _size(value) for name, value in kept.items()}
    total, left_out = sum(sizes.values()), {}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if total <= MAX_BYTES - 4096:
            break
        left_out[name] = size
        total -= size
    return {name: value for name, value in kept.items() if name not in left_out} | {LEFT_OUT: left_out}, True


def characters(value: Any) -> int:
    """Of all texts in a record: about what it takes of memory."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + characters(below) for key, below in value.items())
    return sum(map(characters, value)) if isinstance(value, list | tuple) else 0


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
