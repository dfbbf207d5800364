"""Does the loop learn from its users? The demo's own loop, one home for each seed, then the two ends measured.

`python benchmarks/learning.py [--seeds 0 1 2] [--minutes 8]`. For each seed the demo runs on a fresh home. When its
rounds are over, the first checkpoint and the serving one answer 384 problems that neither traffic nor the gate has
seen, through the gateway at temperature 1, and the problems' tests judge them without the users' mistakes.

Printed: every round with its gate decision, and RESULT lines. `separated` is 1 where the serving checkpoint's 95 %
Wilson interval lies above the first one's; a miss is a 0, not an error.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "platform")]

import httpx  # noqa: E402

from evals.statistics.proportions import wilson  # noqa: E402
from registry.internal_token import Purpose, mint  # noqa: E402
from strop.demo import families  # noqa: E402
from strop.demo.trying import Workbench  # noqa: E402
from strop.demo.variants import Exercise  # noqa: E402
from strop.home import Home  # noqa: E402

NUM_FRESH = 384
TOGETHER = 32
MAX_TOKENS = 20
LOADS_WITHIN_S = 300  # an engine fetches a checkpoint it no longer holds


def run_seed(seed: int, *, minutes: float, home: Path) -> dict[str, Any]:
    """The demo's rounds and the two measurements. Raises RuntimeError when the loop did not go all the way."""
    command = [sys.executable, "-m", "strop.cli", "demo", "--json", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--seed", str(seed), "--minutes", str(minutes)],
        env={**os.environ, "STROP_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path[:2])},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the demo ended with status {process.wait()}")
        result = json.loads(line)
        ends = {"first": result["checkpoints"][0]["checkpoint"], "last": _serving(result)}
        fresh = families.fresh(seed=seed, size=NUM_FRESH, besides=_asked(seed, minutes))
        for name, checkpoint in ends.items():
            result[name] = asyncio.run(measure(checkpoint, fresh, url=result["url"], auth=AsEval(home, result)))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    return result


async def measure(checkpoint: str, exercises: list[Exercise], *, url: str, auth: httpx.Auth) -> dict[str, Any]:
    """How many of the answers work, with the 95 % Wilson interval, and to which problems."""
    bench, gate = Workbench(), asyncio.Semaphore(TOGETHER)
    async with httpx.AsyncClient(base_url=url, auth=auth, timeout=120, trust_env=False) as client:

        async def works(exercise: Exercise, number: int) -> bool:
            body = {
                "model": checkpoint, "prompt": exercise.prompt, "stop": ["\n"], "temperature": 1.0,
                "max_tokens": MAX_TOKENS, "seed": number,
            }  # fmt: skip
            async with gate:
                reply = await _ask(client, body)
            return await bench.passes(exercise, reply["choices"][0]["text"])

        results = await asyncio.gather(*(works(exercise, number) for number, exercise in enumerate(exercises)))
    share = wilson(sum(results), len(results))
    return {
        "checkpoint": checkpoint, "n": len(results), "works": sum(results),
        "share": share.share, "low": share.low, "high": share.high,
        "solved": [exercise.problem_id for exercise, works in zip(exercises, results, strict=True) if works],
    }  # fmt: skip


async def _ask(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + LOADS_WITHIN_S
    while True:
        response = await client.post("/v1/completions", json=body)
        if response.status_code == 200:
            return response.json()
        if response.status_code not in (404, 429, 503) or time.monotonic() > deadline:
            raise RuntimeError(f"{body['model']} answers {response.status_code}: {response.text[:300]}")
        await asyncio.sleep(1)


class AsEval(httpx.Auth):
    """As Strop's own processes ask: these turns are marked eval and nothing trains on them."""

    def __init__(self, home: Path, result: dict[str, Any]) -> None:
        self._secret, self._project = Home(home).secret("internal"), result["project_id"]

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        token = mint(self._secret, Purpose.ANSWERS, project=self._project, source="eval")
        request.headers.update({"authorization": f"Bearer {token}", "x-strop-source": "eval"})
        yield request


def _asked(seed: int, minutes: float) -> list[Exercise]:
    return families.traffic(seed=seed, volume=1, size=families.traffic_size(minutes))


def _serving(result: dict[str, Any]) -> str:
    return next(row["checkpoint"] for row in result["checkpoints"] if row["is_serving"])


def report(seed: int, result: dict[str, Any]) -> dict[str, float | str]:
    """Every round in words on standard output, and the numbers to keep."""
    for number, (row, outcome) in enumerate(zip(result["checkpoints"][1:], result["rounds"], strict=False), 1):
        said = f"{outcome['decision']} {row['checkpoint']} after {outcome['seconds']:.0f} s"
        print(f"seed {seed} round {number}: {said}, held-out {row['held_out']}", flush=True)
    for row in result["checkpoints"]:
        print(f"seed {seed} {row['checkpoint']}: {row['accepted']}/{row['turns']} accepted by users, {row['decision']}")
    first, last = result["first"], result["last"]
    for name in ("first", "last"):
        end = result[name]
        print(f"seed {seed} {name} {end['checkpoint']}: {end['works']}/{end['n']} fresh answers work, "
              f"{end['share']:.1%} [{end['low']:.1%}, {end['high']:.1%}]")  # fmt: skip
    promotion = result["first_promotion_s"]
    return {
        f"learning.first_promotion_s.seed{seed}": "none" if promotion is None else promotion,
        f"learning.rounds.seed{seed}": len(result["rounds"]),
        f"learning.holds.seed{seed}": sum(outcome["decision"] == "hold" for outcome in result["rounds"]),
        f"learning.loop_s.seed{seed}": result["seconds"],
        f"learning.accept_first.seed{seed}": round(first["share"], 4),
        f"learning.accept_last.seed{seed}": round(last["share"], 4),
        f"learning.separated.seed{seed}": int(last["low"] > first["high"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--model-store", type=Path, help="a home's models folder to take the converted model from")
    options = parser.parse_args()
    results: dict[str, float | str] = {}
    details = {}
    for seed in options.seeds:
        home = Path(tempfile.mkdtemp(prefix=f"strop-learning-{seed}-"))
        try:
            if options.model_store:
                shutil.copytree(options.model_store, home / "models", symlinks=True)
            details[seed] = run_seed(seed, minutes=options.minutes, home=home)
            results |= report(seed, details[seed])
        finally:
            subprocess.run([sys.executable, "-m", "strop.local.remove", str(home)], check=False,
                           env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2])})  # fmt: skip
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    kept = {**results, "machine": machine, "minutes": options.minutes, "seeds": details}
    (folder / "learning.json").write_text(json.dumps(kept, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
