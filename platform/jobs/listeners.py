"""Who wants to know, in the same transaction, that a job was given up. Rooms above register in `AppConfig.ready`."""

from collections.abc import Callable

from jobs.models import Job

Listener = Callable[[Job], None]

_on_quarantine: list[Listener] = []


def when_quarantined(listener: Listener) -> None:
    if listener not in _on_quarantine:
        _on_quarantine.append(listener)


def tell_quarantined(job: Job) -> None:
    """Inside the transaction that quarantines `job`: what a listener writes is kept or lost with it."""
    for listener in _on_quarantine:
        listener(job)
