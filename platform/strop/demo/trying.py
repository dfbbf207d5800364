"""How a user finds out whether an answer works: runs it in the crowd's own sandbox, a few answers at a time."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from strop.demo import trial
from strop.demo.variants import Exercise

PROGRAM = Path(trial.__file__)
TIME_LIMIT_S = 3.0  # of the wall; a busy machine may take long to start a process


class Workbench:
    """At most `width` answers are tried at once."""

    def __init__(self, *, width: int = 2) -> None:
        self._free = asyncio.Semaphore(width)

    async def passes(self, exercise: Exercise, answer: str) -> bool:
        """Whether the function completed by `answer` passes all cases. An answer without an end does not."""
        work = {"code": exercise.prompt + answer, **exercise.tests}
        async with self._free:
            return await _run(json.dumps(work).encode()) == trial.PASSED


async def _run(work: bytes) -> int | None:
    """Exit status, or None when the time was over."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(PROGRAM),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        env={}, cwd="/", start_new_session=True,
    )  # fmt: skip
    try:
        await asyncio.wait_for(process.communicate(work), TIME_LIMIT_S)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return process.returncode
