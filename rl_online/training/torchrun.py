"""An update on several ranks: started under torchrun in processes of their own, followed, ended with this one.

Everything they and this process tell each other is a file in a folder of the run: the order, the steps done, whether to
stop, how it ended. A rank that dies ends all of them, and the error says so: the update goes on from its last snapshot
when it is tried again. Ranks end with this process, however it ends (lifeline.py).
"""

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from rl_online.training import errors
from rl_online.training.apply import Progress
from rl_online.training.update import UpdateRequest, UpdateResult

ORDER, STEPS, STOP, ENDING, TOO_LARGE = "order.json", "steps.jsonl", "stop", "ending.json", "too_large.json"
PROGRAM = ("-m", "rl_online.training.rank")
POLL_S = 0.1
KINDS = {kind.__name__: kind for kind in (errors.UpdateFailed, errors.ContradictoryUpdate, errors.UpdateDiverged,
                                          errors.UpdateCancelled, errors.DoesNotFit)}  # fmt: skip

log = logging.getLogger("updater")


class RanksDied(RuntimeError):
    """The ranks ended without a word; another try goes on from the last snapshot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOrder:
    """What the ranks are to do."""

    request: UpdateRequest
    num_threads: int  # of each rank
    max_tokens: int | None = None  # of one pass, where more did not fit


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How it ended: with a result, or with an error of this project by name."""

    result: UpdateResult | None = None
    error: str = ""
    message: str = ""


def run_on_ranks(
    request: UpdateRequest,
    *,
    on_progress: Callable[[Progress], None],
    is_cancelled: Callable[[], bool],
    num_ranks: int,
    num_threads: int,
) -> UpdateResult:
    """`run_update` over so many ranks on this machine, with so many threads each. Raises as it does, and RanksDied.

    Where a pass does not fit into a rank's memory, all start again from the last snapshot with smaller ones.
    """
    order = RankOrder(request=request, num_threads=num_threads)
    while True:
        with tempfile.TemporaryDirectory(prefix="strop-ranks-") as name:
            folder = Path(name)
            write_json(folder / ORDER, order)
            with _started(folder, num_ranks, num_threads) as process:
                _follow(process, folder, on_progress, is_cancelled)
            if (folder / TOO_LARGE).exists():
                order = replace(order, max_tokens=msgspec.json.decode((folder / TOO_LARGE).read_bytes(), type=int))
                continue
            if not (folder / ENDING).exists():
                raise RanksDied(f"the ranks of this update ended with code {process.returncode}; the log says which")
            ending = read_json(folder / ENDING, Ending)
        if ending.result is not None:
            return ending.result
        raise KINDS[ending.error](ending.message)


@contextmanager
def _started(folder: Path, num_ranks: int, num_threads: int) -> Iterator["subprocess.Popen[bytes]"]:
    """torchrun and its ranks, gone when the block ends."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={num_ranks}", "--standalone"]
    process = subprocess.Popen(
        [*command, *PROGRAM, str(folder)],
        stdin=subprocess.PIPE,  # held open, never written to: see lifeline.py
        env=os.environ | {"OMP_NUM_THREADS": str(num_threads)},
        start_new_session=True,  # Ctrl+C in the terminal is for the updater, which then stops them in good order
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def _follow(
    process: "subprocess.Popen[bytes]",
    folder: Path,
    on_progress: Callable[[Progress], None],
    is_cancelled: Callable[[], bool],
) -> None:
    """Pass on steps and the wish to stop, until the ranks have ended."""
    num_read = 0
    while True:
        has_ended = process.poll() is not None
        if is_cancelled():
            (folder / STOP).touch()
        lines = (folder / STEPS).read_bytes().split(b"\n")[:-1] if (folder / STEPS).exists() else []
        for line in lines[num_read:]:
            on_progress(msgspec.json.decode(line, type=Progress))
        num_read = len(lines)
        if has_ended:
            return
        time.sleep(POLL_S)


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all."""
    draft = path.with_suffix(".tmp")
    draft.write_bytes(msgspec.json.encode(value, enc_hook=str))
    draft.rename(path)


def read_json(path: Path, kind: type[Any]) -> Any:
    return msgspec.json.decode(path.read_bytes(), type=kind, dec_hook=lambda known, value: known(value))
