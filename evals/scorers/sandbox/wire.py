"""Frames on the sandbox's sockets: four bytes of length, then JSON. The reader never trusts the sender's length."""

import json
import socket
import struct
from typing import Any

MAX_FRAME = 4 << 20  # bytes; code, tests or a returned value


class BadFrame(ValueError):
    """A frame that is too large, cut off, or not a JSON object."""


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Write one frame; raises BadFrame when the message is too large to be read at the other end."""
    body = json.dumps(message).encode()
    if len(body) > MAX_FRAME:
        raise BadFrame(f"a message of {len(body)} bytes; {MAX_FRAME} are allowed")
    channel.sendall(struct.pack("!I", len(body)) + body)


def receive(channel: socket.socket, *, limit: int = MAX_FRAME) -> dict[str, Any] | None:
    """Read one frame; None when the other end has closed between frames."""
    header = _read(channel, 4)
    if not header:
        return None
    if len(header) < 4:
        raise BadFrame("the stream ended inside a frame")
    (length,) = struct.unpack("!I", header)
    if length > limit:
        raise BadFrame(f"a message of {length} bytes; {limit} are allowed")
    body = _read(channel, length)
    if len(body) < length:
        raise BadFrame("the stream ended inside a frame")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadFrame("not an object")
    return message


def _read(channel: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = channel.recv(min(count - len(parts), 1 << 16))
        except ConnectionResetError:
            break
        if not part:
            break
        parts += part
    return bytes(parts)
