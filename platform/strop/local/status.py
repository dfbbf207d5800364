"""What runs on a home, from its lock, its state file and one question to the site itself."""

from typing import Any

from strop.home import Home
from strop.local.liveness import answers
from strop.local.lock import is_locked, read_state


def status(home: Home) -> dict[str, Any]:
    """A home that was never started is a home where nothing runs."""
    state = read_state(home) if is_locked(home) else {}
    url = state.get("url")
    return {
        "running": bool(state),
        "home": str(home.root),
        "url": url,
        "pid": state.get("pid"),
        "ready": bool(url) and answers(f"{url}/readyz", timeout_s=3),
        "started_at": state.get("started_at"),
        "processes": state.get("processes", []),
    }
