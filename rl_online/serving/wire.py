"""Engine protocol types as JSON, the same on both sides of the engine's socket.

A reply is one JSON object; a generation is NDJSON, one object a line with exactly one key: `chunk`, `final` or `error`.
An empty line is a heartbeat. Not here: sockets and HTTP (serving.client, serving.server).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from rl_online.serving import protocol
from rl_online.serving.protocol import Chunk, EngineError, Final

T = TypeVar("T")

ERRORS: dict[str, type[EngineError]] = {
    error.code: error
    for error in (
        EngineError,
        protocol.InvalidRequest,
        protocol.ContextTooLong,
        protocol.UnknownCheckpoint,
        protocol.EngineBusy,
        protocol.LoadRefused,
        protocol.GenerationFailed,
        protocol.EngineUnavailable,
    )
}


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def decode(body: bytes, kind: type[T]) -> T:
    """Raises InvalidRequest naming the path of the first field that does not fit."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        raise protocol.InvalidRequest(reason, field=path.strip("`").removeprefix("$.") or None) from error
    except msgspec.DecodeError as error:
        raise protocol.InvalidRequest(f"body is not JSON: {error}", field=None) from error


def error_object(error: EngineError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": error.message, **error.details}}


def parse_error(value: dict[str, Any]) -> EngineError:
    fields = dict(value["error"])
    kind = ERRORS.get(fields.pop("code", ""), EngineError)
    return kind(fields.pop("message", ""), **fields)


def encode_event(event: Chunk | Final | EngineError) -> bytes:
    if isinstance(event, EngineError):
        return encode(error_object(event)) + b"\n"
    return encode({"chunk" if isinstance(event, Chunk) else "final": event}) + b"\n"


def decode_event(line: str | bytes) -> Chunk | Final:
    """Raises the EngineError that an error line carries."""
    value = msgspec.json.decode(line)
    if "chunk" in value:
        return msgspec.convert(value["chunk"], Chunk)
    if "final" in value:
        return msgspec.convert(value["final"], Final)
    raise parse_error(value)
