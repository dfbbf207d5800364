"""The process in which an answer lives: it loads the code and calls functions of it when asked, over one socket.

Nothing secret is here, neither tests nor expected results, so whatever the answer does to this interpreter (patch
builtins, read frames, write to every descriptor, exit with 0) it can only change what its own functions return.
"""

import builtins
import socket
from typing import Any

from evals.scorers.sandbox.codec import NotPlain, decode, encode
from evals.scorers.sandbox.wire import BadFrame, receive, send

MAX_MESSAGE = 500  # characters of an exception's text


def serve(examiner: socket.socket) -> None:
    """Answer requests until the examiner hangs up."""
    namespace: dict[str, Any] = {"__name__": "answer", "__builtins__": builtins}
    send(examiner, {"ready": True})
    while (request := receive(examiner)) is not None:
        try:
            send(examiner, _reply(request, namespace, examiner))
        except BadFrame as error:
            send(examiner, {"not_plain": str(error)})


def _reply(request: dict[str, Any], namespace: dict[str, Any], examiner: socket.socket) -> dict[str, Any]:
    """A call that is `timed` waits for the examiner to read the clock, before the function and after its result."""
    try:
        if request["do"] == "load":
            exec(compile(request["code"], "<answer>", "exec"), namespace)  # noqa: S102  the one place where answers run
            return {"value": None}
        args, kwargs = decode(request["args"]), decode(request["kwargs"])
        if request["timed"]:
            _wait(examiner)
        value = encode(namespace[request["name"]](*args, **kwargs))
        if request["timed"]:
            _wait(examiner)
        return {"value": value}
    except NotPlain as error:
        return {"not_plain": str(error)[:MAX_MESSAGE]}
    except BaseException as error:
        return {"raised": type(error).__name__, "message": _text_of(error)}


def _wait(examiner: socket.socket) -> None:
    send(examiner, {"waiting": True})
    receive(examiner)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:MAX_MESSAGE]
    except BaseException:
        return "(its text could not be read)"
