"""The processes of `strop up`: what each is started with, and how it is known to be ready and alive."""

import os
import signal
import sys
from collections.abc import Mapping

from strop.home import Home
from strop.local.liveness import answers, socket_answers, worker_moves
from strop.local.postgres import Postgres
from strop.local.service import Service
from strop.local.valkey import Valkey

NAMES = ("postgres", "valkey", "engine", "updater", "worker", "beat", "web")


def embedded_servers(home: Home) -> list[Service]:
    """PostgreSQL and Valkey, each unless the environment names another one."""
    servers = []
    if not os.environ.get("DATABASE_URL"):
        servers.append(Postgres.of(home).service())
    if not os.environ.get("REDIS_URL"):
        servers.append(Valkey.of(home).service())
    return servers


def product(home: Home, *, url: str, environment: Mapping[str, str]) -> list[Service]:
    """Everything above the two servers, in the order of starting."""
    # As root Celery warns of what pickled messages could do; ours are JSON only.
    hush = "ignore:You're running the worker with superuser privileges:UserWarning"
    celery = [sys.executable, "-W", hush, "-m", "celery", "--quiet", "-A", "strop.celery"]
    # Beat keeps nothing on disk: which slot has run is a row in PostgreSQL.
    beat = [*celery, "beat", "--scheduler", "celery.beat:Scheduler", "--loglevel", "WARNING"]
    worker = [*celery, "worker", "--queues", "default,judge", "--concurrency", str(os.cpu_count() or 1)]
    # Waiting threads give way: with spinning ones, two trained programs on two cores starve everything else.
    torch = {**environment, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    return [
        Service(
            name="engine",
            command=[sys.executable, "-m", "rl_online.commands.engine"],
            environment=torch,
            stop_rank=2,
            stop_s=25,
            ready_s=120,
            is_ready=lambda: socket_answers(home.engine_socket, "/info", timeout_s=2),
            is_healthy=lambda: socket_answers(home.engine_socket, "/info", timeout_s=5),
        ),
        Service(
            name="updater",
            command=[sys.executable, "-m", "rl_online.commands.updater"],
            environment=torch,
            stop_rank=3,
            stop_s=10,
        ),
        Service(
            name="worker",
            command=[*worker, "--loglevel", "WARNING", "--without-gossip", "--without-mingle", "-O", "fair"],
            environment={**environment, "REMAP_SIGTERM": "SIGQUIT"},  # Celery reads it before our own module
            # Waits for tasks that run, and no longer; SIGTERM would sleep the whole 30 s when there is one.
            stop_signal=signal.SIGINT,
            stop_rank=3,
            stop_s=30,
            is_healthy=worker_moves(home),
        ),
        Service(name="beat", command=beat, environment=environment, stop_rank=3, stop_s=15),
        Service(
            name="web",
            command=[sys.executable, "-m", "strop.serve"],
            environment=environment,
            stop_rank=4,
            stop_s=35,
            ready_s=90,
            is_ready=lambda: answers(f"{url}/readyz", timeout_s=2),
            is_healthy=lambda: answers(f"{url}/healthz", timeout_s=5),
        ),
    ]
