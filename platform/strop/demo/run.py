"""`strop demo`: the whole product with its demo loop, from an empty folder to a table, then the site stays up.

The processes are those of `strop up`, on a home of its own; the loop is one more program beside them (`loop`).
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.demo.table import Row, render

if TYPE_CHECKING:
    from strop.local.bootstrap import Bootstrapped
    from strop.local.supervisor import Supervisor

CHECKOUT = Path(__file__).resolve().parents[3]
PROJECT = "editor"
DEFAULT_MINUTES = 8.0
SHOWN = ("demo", "strop")  # the others write to the home's logs only


def main(args: Sequence[str]) -> int:
    """Exit status: 0 the loop went all the way (a held gate is 0), 1 it did not, 2 wrong use."""
    options = _parse(args)
    os.environ.setdefault("STROP_HOME", str(CHECKOUT / ".demo"))
    from strop.env import BadSetting
    from strop.home import Home
    from strop.local.account import UnsafeFolder
    from strop.local.binaries import BinaryMissing
    from strop.local.lock import AlreadyRunning
    from strop.local.ports import PortTaken
    from strop.local.up import up

    home = Home(Path(os.environ["STROP_HOME"]).absolute())
    show = Show(options)
    try:
        up(home, port=options.port, shown=SHOWN, extra={"STROP_PROJECT": PROJECT}, program=show.play)
    except (AlreadyRunning, PortTaken, BinaryMissing, UnsafeFolder, BadSetting, RuntimeError, TimeoutError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0 if show.result is not None else 1


class Show:
    """What runs once everything is ready."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.result: dict[str, Any] | None = None  # None until the loop went all the way
        self._options = options

    def play(self, supervisor: "Supervisor", url: str, environment: Mapping[str, str], first: "Bootstrapped") -> None:
        from strop.local.service import Service

        options = self._options
        sign_in = f"{url}{first.sign_in_path}" if first.sign_in_path else url
        _say(f"\nStrop is up; watch the loop at {url}\nSign in (once, within a day): {sign_in}\n")
        plan = {"seed": options.seed, "minutes": options.minutes, "is_quick": options.quick, "url": url}
        loop = Service(
            name="demo",
            command=[sys.executable, "-m", "strop.demo.loop", json.dumps(plan)],
            environment={**environment, "STROP_LOG_LEVEL": "WARNING"},
            stop_s=5,
        )
        result = json.loads(supervisor.run_once(loop))
        self.result = {**result, "url": url}
        _say("\n" + render([Row(**row) for row in result["checkpoints"]]))
        _say("* serves now. Accept share: what users clicked, mistakes included.")
        _say(f"\nPages: {url}\nSign in (once, within a day): {sign_in}")
        if options.json:
            print(json.dumps(self.result), flush=True)
        if options.quick:
            return
        _say("Ctrl-C stops everything.\n")
        if not options.json:
            print(f"READY {url} sign_in={sign_in}", flush=True)
        supervisor.run()


def _parse(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="strop demo",
        description="Watch the loop learn: a small model, an editor, a crowd of users, all on this machine.",
        epilog="Example: strop demo --quick",
    )
    parser.add_argument("--quick", action="store_true", help="one update, in about two minutes, then the end")
    parser.add_argument("--seed", type=int, default=0, help="of users and problems (default 0)")
    parser.add_argument(
        "--minutes", type=float, default=DEFAULT_MINUTES, help="no new round begins after this (default 8)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=int(os.environ.get("STROP_PORT", "8000")),
        help="where the site listens (default 8000; 0 takes any free one)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on standard output")
    return parser.parse_args(args)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
