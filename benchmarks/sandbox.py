"""How much running an answer in the sandbox costs, against a bare interpreter that confines nothing.

The peer is `python -I -S -c`, a new process per answer: no limits, no deadline for its children, and a verdict that the
answer can forge. Both run the same function with the same two cases, in turns, so that a busy machine slows both. The
rate is that of one sandbox per core, two at most, each asked by a thread of its own; every answer is another one. On a
busy machine the rate is what was left over; CPU time per check says what it takes.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from evals.scorers.execution import Runner
from evals.scorers.lint import ruff
from evals.scorers.sandbox.host import Outcome, Sandbox

CODE = "def f(a):\n    return a + 2"
TESTS = {"function": "f", "cases": [{"args": [1], "expected": 3}, {"args": [5], "expected": 7}]}
PLAIN = [sys.executable, "-I", "-S", "-c", f"{CODE}\nassert f(1) == 3\nassert f(5) == 7"]
ROUNDS = 150
CORES = min(2, os.cpu_count() or 1)
CHECKS, BATCHES = 200, 5  # checks of each thread in one batch; batches of either kind, in turns


def timed_ms(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - started)


def per_second(checks: list[Callable[[int], object]]) -> float:
    """Of one thread for each, all at once."""
    with ThreadPoolExecutor(len(checks)) as pool:
        started = time.perf_counter()
        for done in [pool.submit(lambda check=check: [check(n) for n in range(CHECKS)]) for check in checks]:
            done.result()
        return CHECKS * len(checks) / (time.perf_counter() - started)


def cpu_s() -> float:
    """Of this process and of every child that has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def cpu_ms_per_check() -> float:
    """Of host, zygote and both processes of a check; starting the zygote is taken off."""

    def cost(num_checks: int) -> float:
        before = cpu_s()
        with Sandbox() as sandbox:
            for n in range(num_checks):
                sandbox.run(f"{CODE}  # {n}", TESTS)
        return cpu_s() - before

    return 1000 * statistics.median((cost(CHECKS + 1) - cost(1)) / CHECKS for _ in range(BATCHES))


def latencies() -> dict[str, float | str]:
    with Sandbox() as sandbox:
        level, runner = sandbox.level, Runner(sandbox)
        runner.run(CODE, TESTS)
        confined, spawned, recalled, linted = [], [], [], []
        for _ in range(ROUNDS):
            confined.append(timed_ms(lambda: sandbox.run(CODE, TESTS)))
            spawned.append(timed_ms(lambda: subprocess.run(PLAIN, check=True)))
            recalled.append(timed_ms(lambda: runner.run(CODE, TESTS)))
            linted.append(timed_ms(lambda: ruff.findings(CODE, language="python")))
    return {
        "sandbox.level": level,
        "sandbox.run_ms": round(statistics.median(confined), 3),
        "sandbox.plain_spawn_ms": round(statistics.median(spawned), 3),
        "sandbox.ratio_to_plain_spawn": round(statistics.median(confined) / statistics.median(spawned), 3),
        "sandbox.memo_ms": round(statistics.median(recalled), 4),
        "sandbox.ruff_ms": round(statistics.median(linted), 3),
    }


def rates() -> dict[str, float | int]:
    with ExitStack() as stack:
        sandboxes = [stack.enter_context(Sandbox()) for _ in range(CORES)]

        def confined(sandbox: Sandbox) -> Callable[[int], None]:
            def check(n: int) -> None:
                assert sandbox.run(f"{CODE}  # {n}", TESTS).outcome is Outcome.OK

            check(-1)
            return check

        checks = [confined(sandbox) for sandbox in sandboxes]
        spawns = [lambda _: subprocess.run(PLAIN, check=True)] * CORES
        in_sandbox, plain = [], []
        for _ in range(BATCHES):
            in_sandbox.append(per_second(checks))
            plain.append(per_second(spawns))
    return {
        "sandbox.cores": CORES,
        "sandbox.checks_per_s": round(statistics.median(in_sandbox), 1),
        "sandbox.checks_per_s_worst": round(min(in_sandbox), 1),
        "sandbox.plain_spawns_per_s": round(statistics.median(plain), 1),
    }


def main() -> None:
    load = round(os.getloadavg()[0], 2)
    results = {
        **latencies(),
        **rates(),
        "sandbox.cpu_ms_per_check": round(cpu_ms_per_check(), 2),
        "sandbox.load_before": load,
    }
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    (folder / "sandbox.json").write_text(json.dumps({**results, "machine": machine}, indent=1))


if __name__ == "__main__":
    main()
