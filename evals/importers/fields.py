"""What a field of somebody else's record stands for: a text, a score, a cost, a time, the id of a problem; or nothing.

Pure, and none of them raises: a value of another kind is None (or empty) and stays in the raw record.
"""

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from evals.importers.reading import number_of, time_of

MAX_COUNT = 2**53  # beyond it a number that was written as 4.0 is no longer exact
MAX_COST_USD = Decimal(10) ** 9  # more than any run costs; a hostile exponent ends here
MAX_ID = 128  # characters of a problem's id


def text(value: Any) -> str:
    """A string as it is, a number as it is written, anything else as compact JSON; nothing as ""."""
    if value is None:
        return ""
    return value if isinstance(value, str) else compact(value)


def compact(value: Any) -> str:
    """The JSON of a value, the same for the same value; that of one nested too deep says only so."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    except RecursionError:
        return "(nested too deep)"


def number(value: Any) -> float | None:
    """A finite number; neither a bool nor text is one."""
    return None if isinstance(value, str) else number_of(value)


def count(value: Any) -> int | None:
    """A whole number that can count something, also one written as 4.0."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() and 0 <= found < MAX_COUNT else None


def unit(value: Any) -> float | None:
    """A score: true, false, or a number in [0, 1]."""
    if isinstance(value, bool):
        return float(value)
    found = number(value)
    return found if found is not None and 0 <= found <= 1 else None


def cost(value: Any) -> Decimal | None:
    """US dollars as reported; what cannot be a cost (negative, beyond MAX_COST_USD) is None."""
    if number(value) is None:
        return None
    try:
        found = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    return found if 0 <= found <= MAX_COST_USD else None


def instant(value: Any) -> datetime | None:
    """A time in UTC, of RFC 3339 text or seconds since 1970; text without a zone is taken as UTC (`is_naive` tells)."""
    return time_of(value)[0]


def is_naive(value: Any) -> bool:
    """Whether a time is written without its zone, so that one had to be assumed."""
    return time_of(value)[1]


def elapsed_ms(start: Any, end: Any) -> float | None:
    """Milliseconds between two times of one record; None where one is missing or they run backwards."""
    first, last = instant(start), instant(end)
    if first is None or last is None or last < first:
        return None
    return (last - first).total_seconds() * 1000


def identity(value: Any) -> str:
    """The id of a problem: as it is written, or where it is long its first characters and a digest."""
    written = text(value)
    return written if len(written) <= MAX_ID else f"{written[: MAX_ID - 13]}~{digest(written)}"


def digest(*parts: str) -> str:
    """Twelve hex digits of SHA-1: a short, stable name for a text. No protection against anybody."""
    joined = "\x1f".join(parts).encode(errors="surrogatepass")
    return hashlib.sha1(joined, usedforsecurity=False).hexdigest()[:12]


def rate(part: float, whole: float) -> str:
    """ "1 of 6 (16.67 %)"; `whole` is not 0."""
    return f"{part:g} of {whole:g} ({100 * part / whole:.2f} %)"


def percent(part: float, whole: float) -> str:
    """ "79 %", and below ten "2.5 %"; `whole` is not 0."""
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 10 else f"{share:.1f} %"


def plural(number_of: int) -> str:
    return "" if number_of == 1 else "s"


def listed(names: Iterable[str], *, limit: int = 5) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
