"""A reply that came as a stream of server-sent events, although none was asked for: some servers know nothing else.

Usage in a stream is cumulative: the last one that is told is the whole call's. Adding the chunks up, or taking the
largest of each kind, would count tokens that were never there.
"""

import json
from collections.abc import Iterator
from typing import Any

CONTENT_TYPE = "text/event-stream"


def reply_of_stream(text: str) -> dict[str, Any]:
    """The same reply in one piece, in OpenAI's shape; usage is None where no chunk tells it.

    Raises ValueError for a chunk that is no JSON object.
    """
    content, model, usage, reason = "", None, None, None
    for chunk in _chunks(text):
        model, usage = chunk.get("model") or model, chunk.get("usage") or usage
        for choice in chunk.get("choices") or []:
            if choice.get("index", 0) == 0:
                said = choice["text"] if "text" in choice else (choice.get("delta") or {}).get("content")
                content, reason = content + (said or ""), choice.get("finish_reason") or reason
    choice = {"text": content, "message": {"content": content}, "finish_reason": reason}
    return {"model": model, "choices": [choice], "usage": usage}


def _chunks(text: str) -> Iterator[dict[str, Any]]:
    for line in text.split("\n"):
        data = line.removesuffix("\r").removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        chunk = json.loads(data)
        if not isinstance(chunk, dict):
            raise ValueError(f"a chunk is {type(chunk).__name__}")
        yield chunk
