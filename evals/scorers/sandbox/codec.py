"""Plain Python values as JSON and back, for values that cross from untrusted code.

Only exact built-in data comes out of `decode`: no class of the sender, hence no `__eq__` of the sender. Numbers,
strings, lists and dicts with string keys are themselves; everything else is {"t": type, "v": ...}:

    (1, 2) -> {"t": "tuple", "v": [1, 2]}      {3: "a"} -> {"t": "dict", "v": [[3, "a"]]}

A value that is not data, such as a function or an instance of some class, does not travel.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

MAX_DEPTH = 60  # nesting of a decoded value
MAX_ITEMS = 100_000  # of an iterator drained for the trip
MAX_PLAIN_INT = 10**15  # larger ones travel as hexadecimal: parsing decimals is quadratic and capped

_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


class NotPlain(ValueError):
    """A value that cannot be sent, or a message that is not one of ours."""


class NotData(NotPlain):
    """A value of a kind that cannot be sent at all, such as a function."""


def encode(value: Any, *, depth: int = MAX_DEPTH) -> Any:
    """The JSON form of a value; raises NotPlain for what is not data. Subclasses travel as the built-in they extend."""
    if depth == 0:
        raise NotPlain(f"nested deeper than {MAX_DEPTH}")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int(value)
        return number if abs(number) < MAX_PLAIN_INT else {"t": "int", "v": hex(number)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, complex):
        return {"t": "complex", "v": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray)):
        return {"t": "bytes", "v": value.hex()}
    return _encode_container(value, depth - 1)


def _encode_container(value: Any, depth: int) -> Any:
    def each(items: Any) -> list[Any]:
        return [encode(item, depth=depth) for item in items]

    if isinstance(value, list):
        return each(value)
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and value.keys() != {"t", "v"}:
            return {key: encode(item, depth=depth) for key, item in value.items()}
        return {"t": "dict", "v": [each(pair) for pair in value.items()]}
    if isinstance(value, range):
        return {"t": "range", "v": [value.start, value.stop, value.step]}
    for kind, cls in (("tuple", tuple), ("frozenset", frozenset), ("set", set)):
        if isinstance(value, cls):
            return {"t": kind, "v": each(value)}
    if isinstance(value, Iterator) or type(value) in _VIEWS:
        items: list[Any] = list(islice(value, MAX_ITEMS + 1))
        if len(items) > MAX_ITEMS:
            raise NotPlain(f"an iterator of more than {MAX_ITEMS} items")
        return {"t": "iter", "v": each(items)}
    raise NotData(f"a {type(value).__name__}, which is not plain data")


def decode(message: Any, *, depth: int = MAX_DEPTH) -> Any:
    """The value of a JSON form, from a sender that is not trusted; raises NotPlain on anything malformed."""
    if depth == 0:
        raise NotPlain(f"nested deeper than {MAX_DEPTH}")
    if isinstance(message, list):
        return [decode(item, depth=depth - 1) for item in message]
    if not isinstance(message, dict):
        return message
    if message.keys() != {"t", "v"}:
        return {key: decode(item, depth=depth - 1) for key, item in message.items()}
    try:
        return _decode_tagged(message["t"], message["v"], depth - 1)
    except (TypeError, ValueError, OverflowError) as error:
        raise NotPlain(f"malformed {str(message['t'])[:20]}: {error}") from error


def _decode_tagged(kind: Any, body: Any, depth: int) -> Any:
    match kind:
        case "int":
            return int(body, 16)
        case "complex":
            real, imaginary = body
            return complex(real, imaginary)
        case "bytes":
            return bytes.fromhex(body)
        case "range":
            start, stop, step = body
            return range(start, stop, step)
    items = decode(body, depth=depth)
    if not isinstance(items, list):
        raise NotPlain(f"the body of a {str(kind)[:20]} must be a list")
    match kind:
        case "tuple":
            return tuple(items)
        case "set":
            return set(items)
        case "frozenset":
            return frozenset(items)
        case "iter":
            return iter(items)
        case "dict":
            return {key: value for key, value in items}
    raise NotPlain(f"unknown kind {str(kind)[:20]}")
