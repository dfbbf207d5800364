"""The JSON objects in a judge's reply, wherever they stand in it: alone, fenced, wrapped in prose, or two of them."""

import json
from collections.abc import Iterator
from typing import Any

MAX_OBJECTS = 50  # places in a reply at which JSON is tried


def objects_in(text: str) -> Iterator[tuple[dict[str, Any], slice]]:
    """Outermost JSON objects in the text, and where they stand."""
    decoder, start = json.JSONDecoder(strict=False), text.find("{")
    for _ in range(MAX_OBJECTS):
        if start < 0:
            return
        try:
            found, end = decoder.raw_decode(text, start)
        except RecursionError:
            return
        except ValueError:
            end = start + 1
        else:
            if isinstance(found, dict):
                yield found, slice(start, end)
        start = text.find("{", end)


def without_objects(text: str, objects: list[tuple[dict[str, Any], slice]]) -> str:
    """The text around them: an object that holds no answer may be the request, echoed."""
    for _, span in reversed(objects):
        text = text[: span.start] + text[span.stop :]
    return text


def value_of(found: dict[str, Any], *names: str) -> Any:
    """The value of the first key that is one of `names`, in any case; None without one."""
    return next((value for key, value in found.items() if key.lower() in names), None)
