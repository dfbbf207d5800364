"""Which function does which kind of job. Rooms register theirs in `AppConfig.ready`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.services import ClaimedJob

Handler = Callable[["ClaimedJob"], None]


@dataclass(frozen=True, kw_only=True)
class Registration:
    handler: Handler
    queue: str  # Celery queue whose workers are rung; queues without a Celery worker are polled by their own process
    lease_s: float | None  # None: settings.JOB_LEASE_S; a job not finished or renewed by then may be taken over


_registered: dict[str, Registration] = {}


def register(kind: str, handler: Handler, *, queue: str = "default", lease_s: float | None = None) -> None:
    _registered[kind] = Registration(handler=handler, queue=queue, lease_s=lease_s)


def registration(kind: str) -> Registration:
    """Raises KeyError naming the kind when no room has registered it."""
    return _registered[kind]


def kinds() -> list[str]:
    return sorted(_registered)


_schedules: dict[str, tuple[float, Callable[[], None]]] = {}


def schedule(name: str, every_s: float, function: Callable[[], None]) -> None:
    """Run `function` once per slot of `every_s` seconds, however many beats there are."""
    _schedules[name] = (every_s, function)


def schedules() -> dict[str, tuple[float, Callable[[], None]]]:
    return dict(_schedules)
