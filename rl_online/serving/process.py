"""The engine process once its options are read and its socket listens: an engine, its server and its puller, until
SIGTERM.

Not here: options and the socket (commands.engine, which stays free of torch until the environment is ready for it).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import torch
import uvicorn

from rl_online.serving.embedded import EmbeddedEngine
from rl_online.serving.puller import Puller
from rl_online.serving.server import EngineServer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    socket: Path
    web: str  # base URL of the web process; empty: nothing is pulled
    token_file: Path | None  # holds the secret that internal tokens are made with
    name: str
    device: str  # cpu or cuda, auto resolved
    cache: Path
    threads: int
    max_batch: int
    max_waiting: int
    drain_s: float
    crash: Callable[[str], None] = lambda point: None  # called with the name of each point a test may kill it at


async def serve(options: Options, listener: socket.socket) -> None:
    """Runs until SIGTERM or SIGINT, then drains."""
    torch.set_num_threads(options.threads)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    engine = EmbeddedEngine(
        name=options.name, device=device, max_batch=options.max_batch, max_waiting=options.max_waiting
    )
    server = Server(
        uvicorn.Config(
            EngineServer(engine),
            http="httptools",
            loop="asyncio",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_keep_alive=120,
            timeout_graceful_shutdown=5,
        )
    )
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    pulling = asyncio.create_task(pull(options, engine))
    log.info("engine %s on %s, %d threads", options.name, device, options.threads)
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait({stopped, serving, pulling}, return_when=asyncio.FIRST_COMPLETED)
    log.info("draining")
    pulling.cancel()
    await engine.drain(timeout_s=options.drain_s)
    server.should_exit = True
    await serving
    await asyncio.gather(pulling, return_exceptions=True)
    stopped.cancel()


async def pull(options: Options, engine: EmbeddedEngine) -> None:
    if not options.web:
        await asyncio.Event().wait()
    assert options.token_file is not None
    puller = Puller(
        engine,
        name=options.name,
        web=options.web,
        secret_file=options.token_file,
        cache=options.cache,
        crash=options.crash,
    )
    await puller.run()


class Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process by the signal instead of with exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
