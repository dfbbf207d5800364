"""How long the loop takes beside training and proving: from a batch's last signal to the new checkpoint's first answer.

`python benchmarks/loop.py [--home HOME | --tiny] [--turns 96] [--problems 60] [--rounds 3]`. A real Strop is started on
a fresh home, with the demo's model if HOME has it in its store, else with a tiny policy. In each round users answer
until one signal is missing; then it is sent, and the policy's name is asked again and again until the new version
answers. The times of the rows between the two ends give the stages:

    wait     last signal -> its batch is begun, and update asked for -> the updater begins
    seal     the batch is written
    train    weights are loaded and trained
    publish  checkpoint and delta are written, registered, fetched and held by the engine
    prove    the gate's problems are asked, scored and decided on
    swap     decision -> first answer of the new checkpoint

Printed: each round, and as RESULT lines the median round's stages; `loop.overhead_s` is all but train and prove.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "platform")]

import httpx  # noqa: E402
import psycopg  # noqa: E402

from strop.home import Home  # noqa: E402

STAGES = ("wait", "seal", "train", "publish", "prove", "swap")
MODEL = "smollm2-135m-instruct"  # its folder in a home's store
TOGETHER = 16
MAX_TOKENS = 16
WITHIN_S = 900
LOOK_EVERY_S = 0.02
WORDS = ["def", "return", "f(x):", "x", "+", "1", "2", "if", "else", "("]
SETUP = """
import json
from pathlib import Path
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from registry.services import all_projects, create_key
from registry.tenancy import tenant
from rl_online.services.plans import start_policy

project = all_projects()[0]
folder = Path({folder!r})
if {is_tiny}:
    from rl_online.policy.tiny import build_tiny_policy
    build_tiny_policy(folder, {words!r}, context=512)
problems = [
    ProblemSpec(id=f"p/{{n}}", prompt=f"def f(x):\\n    return x + {{n}} *",
                tests={{"function": "f", "cases": [{{"args": [1], "expected": 1 + n}}]}}, slices={{"half": "all"}})
    for n in range({problems})
]
create_benchmark(project.id, "loop-gate", problems, version=1)
with tenant(project.id):
    key, _ = create_key("loop", ["ingest", "infer"], actor="benchmark")
start_policy(project.id, name="editor", folder=folder, min_turns=2, every_turns={turns}, max_turns={turns},
             gate_benchmark="loop-gate@1", judged_pairs=0, promotion="automatic",
             gate_sampling={{"max_tokens": {max_tokens}, "temperature": 0}},
             gate_limits={{"margin": 1.0, "min_pairs": 2}},
             update_config={{"learning_rate": 1e-6, "minibatch_size": 32}})
print(json.dumps({{"key": key}}))
"""
# A margin of 100 points: every candidate that answers is promoted, so that every round has all stages.


@dataclass
class Strop:
    """A running one."""

    root: Path
    url: str

    @property
    def home(self) -> Home:
        return Home(self.root)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        secret = self.home.secret("postgres-owner")
        with psycopg.connect(
            host=str(self.home.sockets), port=5432, dbname="strop", user="strop_owner", password=secret
        ) as connection:
            return connection.execute(query, values or None).fetchall()  # type: ignore[arg-type]

    def run_python(self, code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "import django; django.setup()\n" + code],
            cwd=CHECKOUT, text=True, capture_output=True,
            env=environment(self.root) | {"DJANGO_SETTINGS_MODULE": "strop.settings"}, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout


def environment(root: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STROP_", "DATABASE_"))}
    return kept | {"STROP_HOME": str(root), "PYTHONPATH": os.pathsep.join(sys.path[:2])}


@contextmanager
def running(root: Path) -> Iterator[Strop]:
    command = [sys.executable, "-m", "strop.cli", "--home", str(root), "up", "--port", "0", "--quiet"]
    process = subprocess.Popen(command, cwd=CHECKOUT, env=environment(root), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("READY "):
            raise RuntimeError(f"strop up said {line!r}; see {root / 'logs'}")
        yield Strop(root, line.split()[1])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(90)


class Users:
    """Everyone who asks and accepts, with one key."""

    def __init__(self, strop: Strop, key: str) -> None:
        self._client = httpx.AsyncClient(
            base_url=strop.url, headers={"authorization": f"Bearer {key}"}, timeout=120, trust_env=False
        )

    async def __aenter__(self) -> "Users":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def take_turns(self, num: int) -> list[str]:
        gate = asyncio.Semaphore(TOGETHER)

        async def one(number: int) -> str:
            async with gate:
                return (await self.ask(f"user-{number}"))["id"]

        return list(await asyncio.gather(*(one(number) for number in range(num))))

    async def version(self) -> int:
        """Of the checkpoint that answers now. Asked greedily: nothing ever learns from such a turn."""
        return (await self.ask("watcher", max_tokens=1, temperature=0.0))["version"]

    async def ask(self, user: str, *, max_tokens: int = MAX_TOKENS, temperature: float = 1.0) -> dict[str, Any]:
        body = {
            "model": "editor", "prompt": "def f(x):\n    return x +", "user": user, "max_tokens": max_tokens,
            "temperature": temperature,
        }  # fmt: skip
        deadline = time.monotonic() + WITHIN_S
        while True:
            response = await self._client.post("/v1/completions", json=body)
            if response.status_code == 200:
                return response.json() | {"version": int(response.headers["x-weight-version"])}
            if response.status_code not in (404, 429, 503) or time.monotonic() > deadline:
                raise RuntimeError(f"the gateway answers {response.status_code}: {response.text[:300]}")
            await asyncio.sleep(0.2)

    async def judge(self, turns: list[str]) -> None:
        now = datetime.now(UTC).isoformat()
        items = [
            {"type": "signal", "id": str(uuid.uuid4()), "turn": turn, "at": now,
             "kind": "accept" if number % 2 else "reject"}
            for number, turn in enumerate(turns)
        ]  # fmt: skip
        response = await self._client.post("/v1/events", json={"items": items})
        response.raise_for_status()
        if response.json()["outcomes"] != {"accepted": len(items)}:
            raise RuntimeError(f"signals were not accepted: {response.text[:300]}")


async def until(is_so: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not (found := await asyncio.to_thread(is_so)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {WITHIN_S} s in vain until {what}")
        await asyncio.sleep(0.2)
    return found


async def play_round(strop: Strop, users: Users, *, turns: int) -> dict[str, float]:
    """One batch through the whole loop; seconds by stage."""
    serving = await users.version()
    missing = turns - num_ready(strop)
    asked = await users.take_turns(missing)
    await users.judge(asked[:-1])
    await until(lambda: num_ready(strop) >= turns - 1, "all turns but one are labelled")
    await asyncio.sleep(5)  # whatever those labels set off is over
    begun = time.time()
    await users.judge(asked[-1:])
    deadline = time.monotonic() + WITHIN_S
    while await users.version() == serving:
        if time.monotonic() > deadline:
            raise RuntimeError("the new checkpoint never answered")
        await asyncio.sleep(LOOK_EVERY_S)
    ended = time.time()
    await until(lambda: bool(run_rows(strop, serving)), "the round's rows are there")
    return stages(run_rows(strop, serving)[0], begun=begun, ended=ended)


def num_ready(strop: Strop) -> int:
    """Labelled turns that no batch has taken, without the watcher's."""
    ((num,),) = strop.rows(
        "SELECT count(*) FROM feedback_turn turn WHERE settled_at IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM rl_online_batchsample sample WHERE sample.turn_ref = turn.turn_id) "
        "AND (sampling->>'temperature')::float > 0"
    )
    return num


def run_rows(strop: Strop, serving: int) -> list[tuple[Any, ...]]:
    return strop.rows(
        "SELECT extract(epoch FROM run.created_at), extract(epoch FROM run.started_at), "
        "extract(epoch FROM report.created_at), run.timings, run.version "
        "FROM rl_online_updaterun run JOIN rl_online_gatereport report ON report.run_id = run.id "
        "JOIN registry_checkpoint parent ON parent.id = run.parent_id "
        "WHERE run.state = 'promoted' AND parent.version = %s ORDER BY run.version DESC, report.created_at DESC",
        serving,
    )


def stages(row: tuple[Any, ...], *, begun: float, ended: float) -> dict[str, float]:
    asked, started, decided, timings, version = (float(row[0]), float(row[1]), float(row[2]), row[3], row[4])
    found = {
        "wait": asked - timings["seal"] - begun + started - asked,
        "seal": timings["seal"],
        "train": timings["train"],
        "publish": decided - started - timings["train"] - timings["prove"],
        "prove": timings["prove"],
        "swap": ended - decided,
    }
    assert abs(sum(found.values()) - (ended - begun)) < 0.05, (found, ended - begun)
    overhead = sum(seconds for stage, seconds in found.items() if stage not in ("train", "prove"))
    return found | {"overhead": overhead, "total": ended - begun, "version": version}


async def play(strop: Strop, options: argparse.Namespace, key: str) -> list[dict[str, float]]:
    rounds = []
    async with Users(strop, key) as users:
        for number in range(1, options.rounds + 1):
            rounds.append(await play_round(strop, users, turns=options.turns))
            times = ", ".join(f"{stage} {rounds[-1][stage]:.2f}" for stage in STAGES)
            print(f"round {number}: {times}; all but train and prove {rounds[-1]['overhead']:.2f} s", flush=True)
    return rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="a home whose store holds the demo's model")
    parser.add_argument("--tiny", action="store_true", help="a two-layer policy instead of the demo's model")
    parser.add_argument("--turns", type=int, default=96, help="of one batch")
    parser.add_argument("--problems", type=int, default=60, help="the gate asks")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    stored = options.home / "models" / MODEL if options.home else None
    is_tiny = options.tiny or stored is None or not stored.is_dir()
    root = Path(tempfile.mkdtemp(prefix="strop-loop-"))
    try:
        with running(root) as strop:
            folder = root / "tiny" if is_tiny else stored
            setup = SETUP.format(
                folder=str(folder), is_tiny=is_tiny, words=WORDS, problems=options.problems, turns=options.turns,
                max_tokens=MAX_TOKENS,
            )  # fmt: skip
            key = json.loads(strop.run_python(setup).splitlines()[-1])["key"]
            rounds = asyncio.run(play(strop, options, key))
    finally:
        subprocess.run([sys.executable, "-m", "strop.local.remove", str(root)], env=environment(root), check=False)
        shutil.rmtree(root, ignore_errors=True)
    median = sorted(rounds, key=lambda one: one["overhead"])[len(rounds) // 2]
    results = {f"loop.{stage}_s": round(median[stage], 3) for stage in STAGES}
    results |= {
        "loop.overhead_s": round(median["overhead"], 3),
        "loop.overhead_max_s": round(max(one["overhead"] for one in rounds), 3),
        "loop.total_s": round(statistics.median(one["total"] for one in rounds), 3),
    }
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    kept = {**results, "machine": machine, "model": "tiny" if is_tiny else MODEL, "rounds": rounds}
    kept |= {"turns": options.turns, "problems": options.problems}
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "loop.json").write_text(json.dumps(kept, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
