"""What an answer does, whatever its user made of it: what drifts first where a reward looks away.

Both reward hacks that Cursor published showed up here before any accept share moved: invalid tool calls, once those
were left out of the reward, and questions back instead of risky edits. Pure: what was sent in, three facts out.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

QUESTION = re.compile(r"[?？؟][\"'”’)\]*_\s]*\Z")
CODE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)


FACTS = ("has_bad_call", "asks_back", "is_without_edit")  # the fields of a Conduct, and of a turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Conduct:
    has_bad_call: bool  # a tool call that nobody could carry out: without a name, or its arguments are no JSON object
    asks_back: bool  # ends in a question, and does nothing
    is_without_edit: bool  # does nothing: a chat's answer without tool call and code block; a blank raw completion


def conduct_of(*, completion: str | None, tool_calls: Sequence[Any], is_chat: bool) -> Conduct | None:
    """None for a turn that brought neither text nor call: it answered nothing, so it has no conduct."""
    if not completion and not tool_calls:
        return None
    text = completion or ""
    acts = bool(tool_calls) or CODE.search(text) is not None
    return Conduct(
        has_bad_call=any(map(is_bad_call, tool_calls)),
        asks_back=not acts and asks_back(text),
        is_without_edit=not acts and (is_chat or not text.strip()),
    )


def asks_back(text: str) -> bool:
    """Whether an answer without a tool call ends in a question and holds no code block."""
    return QUESTION.search(text) is not None and CODE.search(text) is None


def is_bad_call(call: Any) -> bool:
    """Whether no tool could be called with it; OpenAI's shape or a plain {name, arguments}.

    Whether the tool exists, or takes these arguments, only its product knows.
    """
    inner = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str) or not inner["name"].strip():
        return True
    arguments: Any = next((inner[key] for key in ("arguments", "input", "args") if key in inner), {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return True
    return not isinstance(arguments, dict)
