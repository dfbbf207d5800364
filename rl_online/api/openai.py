"""OpenAI's shapes: what a request may say, and how replies, stream chunks and errors look.

Pure: JSON in, dataclasses out, and back. A parameter we would not honour is refused by name, never ignored. Not here:
who may ask (api.gateway) and what is recorded (services.recording).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from registry.errors import InvalidInput, StropError
from rl_online.serving.protocol import TokenDetail, TokenLogprob

MAX_CHOICES = 16
MAX_STOP = 4
MAX_TOP_LOGPROBS = 20
MAX_LEGACY_LOGPROBS = 5
MAX_METADATA = 16
DEFAULT_MAX_TOKENS = 256  # where none is given and the context has the room
ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Api(StrEnum):
    CHAT = "chat.completion"
    TEXT = "text_completion"

    @property
    def id_prefix(self) -> str:
        return "chatcmpl" if self is Api.CHAT else "cmpl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One request as asked, checked, with OpenAI's defaults filled in."""

    api: Api
    model: str
    messages: list[dict[str, Any]] | None  # exactly one of messages and prompt
    prompt: str | None
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # our extension; 0 keeps every token
    seed: int | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    top_logprobs: int | None = None  # None: no logprobs in the reply
    stream: bool = False
    include_usage: bool = False
    return_token_ids: bool = False
    tools: list[dict[str, Any]] | None = None
    user: str | None = None
    session: str | None = None
    metadata: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What every reply and every chunk of it begins with."""

    id: str
    api: Api
    created: int  # Unix seconds
    model: str  # always <policy>@<version>
    fingerprint: str

    def to_json(self, *, is_chunk: bool) -> dict[str, Any]:
        suffix = ".chunk" if is_chunk and self.api is Api.CHAT else ""
        return {
            "id": self.id,
            "object": f"{self.api.value}{suffix}",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def parse_ask(api: Api, body: Any) -> Ask:
    """Raises InvalidInput naming the first parameter that is wrong or that we do not honour."""
    if not isinstance(body, dict):
        raise InvalidInput("the body must be a JSON object")
    if name := next((name for name, value in body.items() if _holds_nul(value)), None):
        raise InvalidInput(f"{name} holds the character U+0000, which cannot be stored", field=name)
    fields = _Fields(body)
    is_chat = api is Api.CHAT
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise InvalidInput("name a model: <policy> or <policy>@<version>", field="model")
    limit = fields.take("max_tokens", _integer(1, 1_000_000))
    if is_chat:
        limit = fields.take("max_completion_tokens", _integer(1, 1_000_000)) or limit
    stream = bool(fields.take("stream", _flag))
    ask = Ask(
        api=api,
        model=fields.take("model", _text),
        messages=_messages(fields.take("messages", _anything)) if is_chat else None,
        prompt=None if is_chat else _prompt(fields.take("prompt", _anything)),
        n=fields.take("n", _integer(1, MAX_CHOICES)) or 1,
        temperature=_or(fields.take("temperature", _number(0.0, 2.0)), 1.0),
        top_p=_or(fields.take("top_p", _number(0.0, 1.0, is_open=True)), 1.0),
        top_k=fields.take("top_k", _integer(0, 1_000_000)) or 0,
        seed=fields.take("seed", _integer(-(2**63), 2**63 - 1)),
        stop=_stop(fields.take("stop", _anything)),
        max_tokens=limit,
        top_logprobs=_chat_logprobs(fields) if is_chat else fields.take("logprobs", _integer(0, MAX_LEGACY_LOGPROBS)),
        stream=stream,
        include_usage=_include_usage(fields.take("stream_options", _anything), stream=stream),
        return_token_ids=bool(fields.take("return_token_ids", _flag)),
        tools=_tools(fields.take("tools", _anything)) if is_chat else None,
        user=fields.take("user", _text),
        session=fields.take("session_id", _text),
        metadata=_metadata(fields.take("metadata", _anything)),
    )
    _refuse_unsupported(fields, ask)
    return ask


def chat_choice(
    index: int, turn_id: str, text: str, finish_reason: str, details: Sequence[TokenDetail] | None
) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": chat_logprobs(details),
        "finish_reason": finish_reason,
        "strop_turn": turn_id,
    }


def text_choice(
    index: int,
    turn_id: str,
    text: str,
    finish_reason: str | None,
    details: Sequence[TokenDetail] | None,
    offset: int = 0,
) -> dict[str, Any]:
    """Also the chunk of a streamed text completion; `offset` is where its text begins in the completion."""
    return {
        "index": index,
        "text": text,
        "logprobs": text_logprobs(details, offset),
        "finish_reason": finish_reason,
        "strop_turn": turn_id,
    }


def chat_delta(
    index: int,
    turn_id: str,
    delta: Mapping[str, Any],
    finish_reason: str | None = None,
    details: Sequence[TokenDetail] | None = None,
) -> dict[str, Any]:
    return {
        "index": index,
        "delta": dict(delta),
        "logprobs": chat_logprobs(details),
        "finish_reason": finish_reason,
        "strop_turn": turn_id,
    }


def usage_json(*, prompt: int, cached: int, completion: int) -> dict[str, Any]:
    """OpenAI counts cached tokens inside the prompt's."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def error_json(error: StropError) -> dict[str, Any]:
    kind = ERROR_TYPES.get(error.status) or ("invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.field, "code": error.code}}


def chat_logprobs(details: Sequence[TokenDetail] | None) -> dict[str, Any] | None:
    if details is None:
        return None
    content = [_token(one.sampled) | {"top_logprobs": [_token(top) for top in one.top]} for one in details]
    return {"content": content, "refusal": None}


def text_logprobs(details: Sequence[TokenDetail] | None, offset: int) -> dict[str, Any] | None:
    if details is None:
        return None
    offsets = []
    for one in details:
        offsets.append(offset)
        offset += len(one.sampled.token)
    return {
        "tokens": [one.sampled.token for one in details],
        "token_logprobs": [one.sampled.logprob for one in details],
        "top_logprobs": [{top.token: top.logprob for top in one.top} for one in details],
        "text_offset": offsets,
    }


def _token(one: TokenLogprob) -> dict[str, Any]:
    return {"token": one.token, "logprob": one.logprob, "bytes": one.bytes}


class _Fields:
    """A request's parameters, handed out one by one, so that what is left over is what nobody reads."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.left = {name: value for name, value in body.items() if value is not None}

    def take(self, name: str, parse: Callable[[Any, str], Any]) -> Any:
        """None when absent or null."""
        return parse(self.left.pop(name), name) if name in self.left else None


# Values that ask for nothing beyond what is done anyway; any other value of these is refused.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "parallel_tool_calls": (True,),
    "tool_choice": ("auto", "none"),
    "service_tier": ("auto", "default"),
    "echo": (False,),
    "suffix": ("",),
}


def _refuse_unsupported(fields: _Fields, ask: Ask) -> None:
    for name, value in fields.left.items():
        if name == "best_of" and value == ask.n:
            continue
        if name not in HARMLESS:
            raise InvalidInput(f"{name} is not supported; leave it out", field=name)
        if value not in HARMLESS[name]:
            raise InvalidInput(f"{name} {value!r} is not supported; leave it out", field=name)


def _holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any("\0" in key or _holds_nul(one) for key, one in value.items())
    if isinstance(value, list):
        return any(_holds_nul(one) for one in value)
    return isinstance(value, str) and "\0" in value


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _anything(value: Any, _name: str) -> Any:
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise InvalidInput(f"{name} must be a text of at most 200 characters", field=name)
    return value


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be true or false", field=name)
    return value


def _integer(low: int, high: int) -> Callable[[Any, str], int]:
    def parse(value: Any, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidInput(f"{name} is {value!r}; it must be a whole number from {low} to {high}", field=name)
        return value

    return parse


def _number(low: float, high: float, *, is_open: bool = False) -> Callable[[Any, str], float]:
    def parse(value: Any, name: str) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or not low <= value <= high or (is_open and value == low):
            bracket = "(" if is_open else "["
            raise InvalidInput(f"{name} is {value!r}; it must lie in {bracket}{low:g}, {high:g}]", field=name)
        return float(value)

    return parse


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise InvalidInput("messages must be a list with at least one message", field="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(value)]


def _message(message: Any, path: str) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise InvalidInput("a message is an object with a role", field=path)
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_text_part(part, f"{path}.content[{index}]") for index, part in enumerate(content))
    if content is not None and not isinstance(content, str):
        raise InvalidInput("content must be a text or a list of text parts", field=f"{path}.content")
    if content is None and not message.get("tool_calls"):
        raise InvalidInput("content is missing", field=f"{path}.content")
    return {**message, "content": content or ""}


def _text_part(part: Any, path: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise InvalidInput('only parts {"type": "text", "text": ...} are supported', field=path)
    return part["text"]


def _prompt(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or not value:
        raise InvalidInput("prompt must be one text; send several requests for several prompts", field="prompt")
    return value


def _stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if stops is None:
        return ()
    if not isinstance(stops, list) or len(stops) > MAX_STOP or not all(isinstance(one, str) and one for one in stops):
        raise InvalidInput(f"stop must be a text or up to {MAX_STOP} texts, none empty", field="stop")
    return tuple(stops)


def _chat_logprobs(fields: _Fields) -> int | None:
    wanted = bool(fields.take("logprobs", _flag))
    top = fields.take("top_logprobs", _integer(0, MAX_TOP_LOGPROBS))
    if top and not wanted:
        raise InvalidInput("top_logprobs needs logprobs true", field="top_logprobs")
    return (top or 0) if wanted else None


def _include_usage(options: Any, *, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise InvalidInput("stream_options needs stream true", field="stream_options")
    if not isinstance(options, dict):
        raise InvalidInput("stream_options must be an object", field="stream_options")
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            raise InvalidInput(f"{name} is not supported; leave it out", field=f"stream_options.{name}")
    return bool(options.get("include_usage"))


def _tools(value: Any) -> list[dict[str, Any]] | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidInput("tools must be a list of objects", field="tools")
    return value


def _metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_METADATA:
        raise InvalidInput(f"metadata must be an object with at most {MAX_METADATA} keys", field="metadata")
    for key, one in value.items():
        if not isinstance(one, str) or len(one) > 512 or len(key) > 64:
            message = "keys are texts of at most 64 characters, values of at most 512"
            raise InvalidInput(message, field=f"metadata.{key}")
    return dict(value)
