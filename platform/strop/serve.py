"""The web process: `python -m strop.serve`. One uvicorn, one port: pages, API, gateway and live streams.

On SIGTERM it stays reachable and answers /readyz with 503 until open answers are finished (25 s at most), then exits 0.
"""

import logging
import os
import socket
import threading
import time
import warnings
from types import FrameType

import uvicorn

from strop.traffic import traffic

log = logging.getLogger(__name__)

DRAIN_S = 25.0
HANG_UP_S = 0.5  # long polls, live pages and our own jobs are let go after this; they ask the next process


class Server(uvicorn.Server):
    _stop_asked_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._stop_asked_at is not None:
            self.force_exit = self.should_exit = True
        self._stop_asked_at = time.monotonic()
        traffic.drain()

    async def on_tick(self, counter: int) -> bool:
        is_over = await super().on_tick(counter)
        if self._stop_asked_at is None or is_over:
            return is_over
        waited_s = time.monotonic() - self._stop_asked_at
        if waited_s > HANG_UP_S:
            traffic.hang_up()
        if waited_s > DRAIN_S:
            log.warning("stopping with answers unfinished: %s", ", ".join(traffic.open) or "none")
        self.should_exit = traffic.num_open == 0 or waited_s > DRAIN_S
        return self.should_exit


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")
    os.environ.setdefault("STROP_DB_POOL", "1")
    import django
    from django.conf import settings

    django.setup()
    from jobs.beats import keep_beating

    # WhiteNoise hands small static files over as a plain iterator; nothing blocks for long.
    warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
    name = f"web@{socket.gethostname()}:{settings.PORT}"
    beating = {"version": settings.CODE_VERSION}
    threading.Thread(target=keep_beating, args=(name, "web"), kwargs=beating, name="beat", daemon=True).start()
    Server(configuration()).run()


def configuration() -> uvicorn.Config:
    """Where to listen, and whose word about the client's address and scheme to take."""
    from django.conf import settings

    return uvicorn.Config(
        "strop.asgi:application",
        host=settings.HOST,
        port=settings.PORT,
        lifespan="off",
        http="httptools",
        loop="asyncio",
        ws="none",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=5,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=settings.TRUSTED_PROXIES,
    )


if __name__ == "__main__":
    main()
