"""How much running an answer in the sandbox costs, against a bare interpreter that confines nothing.

The peer is `python -I -S -c`, a new process per answer: no limits, no deadline for its children, and a verdict that the
answer can forge. Both run the same function with the same two cases, in turns, so that a busy machine slows both.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from evals.scorers.execution import Runner
from evals.scorers.sandbox.host import Sandbox

CODE = "def f(a):\n    return a + 2"
TESTS = {"function": "f", "cases": [{"args": [1], "expected": 3}, {"args": [5], "expected": 7}]}
ROUNDS = 150


def timed_ms(action) -> float:
    started = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - started)


def main() -> None:
    plain = [sys.executable, "-I", "-S", "-c", f"{CODE}\nassert f(1) == 3\nassert f(5) == 7"]
    with Sandbox() as sandbox:
        level, runner = sandbox.level, Runner(sandbox)
        runner.run(CODE, TESTS)
        confined, spawned, recalled = [], [], []
        for _ in range(ROUNDS):
            confined.append(timed_ms(lambda: sandbox.run(CODE, TESTS)))
            spawned.append(timed_ms(lambda: subprocess.run(plain, check=True)))
            recalled.append(timed_ms(lambda: runner.run(CODE, TESTS)))
    results = {
        "sandbox.level": level,
        "sandbox.run_ms": round(statistics.median(confined), 3),
        "sandbox.plain_spawn_ms": round(statistics.median(spawned), 3),
        "sandbox.ratio_to_plain_spawn": round(statistics.median(confined) / statistics.median(spawned), 3),
        "sandbox.memo_ms": round(statistics.median(recalled), 4),
    }
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    (folder / "sandbox.json").write_text(json.dumps({**results, "machine": machine}, indent=1))


if __name__ == "__main__":
    main()
