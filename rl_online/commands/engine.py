"""`python -m rl_online.commands.engine`: the inference process of `strop up`.

Serves the engine protocol on a unix socket that only its owner may open, and pulls the weights it should hold from
the web. SIGTERM stops taking requests, lets the running ones end within a bound, then exits 0. Every option is also
an environment variable.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from pathlib import Path

EXIT_WRONG_USE = 2


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="engine", description="Serve checkpoints to Strop's gateway.")
    parser.add_argument("--socket", type=Path, default=env("STROP_ENGINE_SOCKET"))
    parser.add_argument("--web", default=env("STROP_WEB_URL", ""), help="http://host:port to pull weights from")
    parser.add_argument("--token-file", type=Path, default=env("STROP_TOKEN_FILE"))
    parser.add_argument("--name", default=env("STROP_ENGINE_NAME", "embedded"))
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default=env("STROP_DEVICE", "auto"))
    parser.add_argument("--cache", type=Path, default=env("STROP_ENGINE_CACHE"))
    parser.add_argument("--threads", type=int, default=int(env("STROP_THREADS") or 0), help="0: one for each core")
    parser.add_argument("--max-batch", type=int, default=int(env("STROP_ENGINE_MAX_BATCH", "32")))
    parser.add_argument("--max-waiting", type=int, default=int(env("STROP_ENGINE_MAX_WAITING", "256")))
    parser.add_argument("--drain", type=float, default=float(env("STROP_ENGINE_DRAIN_S", "20")), help="seconds")
    values = parser.parse_args(arguments)
    if values.socket is None:
        parser.error("--socket or STROP_ENGINE_SOCKET is needed")
    if values.web and (values.token_file is None or values.cache is None):
        parser.error("--web needs --token-file and --cache")
    return values


def main(arguments: list[str] | None = None) -> int:
    values = parse_options(arguments)
    # OpenMP reads this when torch loads it. Its default spins at every barrier, which costs a step tenfold as soon as
    # another process wants the same cores; hence also the late import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from jobs import crash
    from rl_online.serving.process import Options, serve

    options = Options(
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
        crash=crash.point,
    )
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


if __name__ == "__main__":
    sys.exit(main())
