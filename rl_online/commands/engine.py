"""`python -m rl_online.commands.engine`: the inference process of `strop up`.

Serves the engine protocol on a unix socket that only its owner may open, and pulls the weights it should hold from
the web. SIGTERM stops taking requests, lets the running ones end within a bound, then exits 0. Every option is also
an environment variable.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import torch
import uvicorn

from rl_online.serving.embedded import EmbeddedEngine
from rl_online.serving.puller import Puller
from rl_online.serving.server import EngineServer

log = logging.getLogger(__name__)

EXIT_WRONG_USE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    socket: Path
    web: str  # base URL of the web process; empty: nothing is pulled
    token_file: Path | None  # holds the internal token
    name: str
    device: str  # cpu or cuda, auto resolved
    cache: Path
    threads: int
    max_batch: int
    max_waiting: int
    drain_s: float


def parse_options(arguments: list[str] | None = None) -> Options:
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="engine", description="Serve checkpoints to Strop's gateway.")
    parser.add_argument("--socket", type=Path, default=env("STROP_ENGINE_SOCKET"))
    parser.add_argument("--web", default=env("STROP_WEB_URL", ""), help="http://host:port to pull weights from")
    parser.add_argument("--token-file", type=Path, default=env("STROP_TOKEN_FILE"))
    parser.add_argument("--name", default=env("STROP_ENGINE_NAME", "embedded"))
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default=env("STROP_DEVICE", "auto"))
    parser.add_argument("--cache", type=Path, default=env("STROP_ENGINE_CACHE"))
    parser.add_argument("--threads", type=int, default=int(env("STROP_THREADS", "0")), help="0: one for each core")
    parser.add_argument("--max-batch", type=int, default=int(env("STROP_ENGINE_MAX_BATCH", "32")))
    parser.add_argument("--max-waiting", type=int, default=int(env("STROP_ENGINE_MAX_WAITING", "256")))
    parser.add_argument("--drain", type=float, default=float(env("STROP_ENGINE_DRAIN_S", "20")), help="seconds")
    values = parser.parse_args(arguments)
    if values.socket is None:
        parser.error("--socket or STROP_ENGINE_SOCKET is needed")
    if values.web and (values.token_file is None or values.cache is None):
        parser.error("--web needs --token-file and --cache")
    return Options(
        socket=values.socket,
        web=values.web.rstrip("/"),
        token_file=values.token_file,
        name=values.name,
        device=values.device,
        cache=values.cache,
        threads=values.threads or os.cpu_count() or 1,
        max_batch=values.max_batch,
        max_waiting=values.max_waiting,
        drain_s=values.drain,
    )


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        listener = listen(options.socket)
    except OSError as error:
        print(f"engine: {error}", file=sys.stderr)
        return EXIT_WRONG_USE
    try:
        asyncio.run(serve(options, listener))
    finally:
        listener.close()
        options.socket.unlink(missing_ok=True)
    return 0


def listen(path: Path) -> socket.socket:
    """A listening unix socket for its owner only. Raises OSError when another engine answers there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise OSError(f"another engine answers at {path.name}")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    previous = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(previous)
    listener.listen(512)
    return listener


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
    puller = Puller(engine, name=options.name, web=options.web, token_file=options.token_file, cache=options.cache)
    await puller.run()


class Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process by the signal instead of with exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


if __name__ == "__main__":
    sys.exit(main())
