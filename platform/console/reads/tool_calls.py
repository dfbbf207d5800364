"""Calls of tools as senders write them: OpenAI's shape, a plain {name, arguments}, or anything at all."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """Example: {"function": {"name": "search", "arguments": "{\\"q\\": \\"x\\"}"}} -> search, {"q": "x"}"""

    name: str  # empty: it could not be found
    arguments: str  # JSON, indented; as it was sent where it is none

    def __str__(self) -> str:
        return f"{self.name or 'unnamed'}({self.arguments})"


def tool_calls(value: Any) -> list[ToolCall]:
    """Never raises: what has another shape is shown whole, without a name."""
    if not value:
        return []
    return [_call(one) for one in (value if isinstance(value, list) else [value])]


def _call(value: Any) -> ToolCall:
    inner = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        return ToolCall(name="", arguments=_written(value))
    given: Any = next((inner[key] for key in ("arguments", "input", "args") if key in inner), {})
    return ToolCall(name=inner["name"], arguments=_written(given))


def _written(value: Any) -> str:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    return json.dumps(value, indent=2, ensure_ascii=False)
