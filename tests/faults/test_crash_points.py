"""kill -9 at named points of web, worker, updater: nothing acknowledged is lost, and the loop ends the same.

One product is set up and stopped; every run starts from a clone of it, takes the same items over HTTP and is left alone
until its update is promoted. Rows and weights of a run that was killed on its way must equal those of one that was not.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from rl_online.policy.tiny import build_tiny_policy
from tests.live import LiveStrop, live, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

WORDS = [f"w{index}" for index in range(62)]
NUM_TURNS = 64
SETUP = """
from pathlib import Path
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from registry.services import all_projects, create_key
from registry.tenancy import tenant
from rl_online.services.plans import start_policy

project = all_projects()[0]
problems = [
    ProblemSpec(
        id=f"{{half}}-{{n}}", prompt=f"w{{n}} w{{n + 1}}", slices={{"half": half, "family": f"f{{n % 4}}"}},
        tests={{"function": "f", "cases": [{{"args": [n], "kwargs": {{}}, "expected": n}}]}},
    )
    for half in ("seen", "unseen") for n in range(30)
]
create_benchmark(project.id, "gate", problems, version=1)
policy = start_policy(
    project.id, name="editor", folder=Path(r"{folder}"), every_turns={num_turns}, min_turns=16, gate_benchmark="gate@1",
    gate_sampling={{"max_tokens": 8}}, judged_pairs=0,
    update_config={{"minibatch_size": 16, "learning_rate": 1e-3, "snapshot_steps": 1}},
)
with tenant(project.id):
    print(create_key("fault test", ["ingest", "infer", "read"], actor="test")[0])
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveStrop, str]]:
    """A stopped product with a tiny policy, a gate benchmark and a key; and the key."""
    strop = LiveStrop(tmp_path_factory.mktemp("template"))
    try:
        strop.prepare()
        strop.start("--without", "updater", "--without", "engine")
        folder = build_tiny_policy(strop.root / "tiny", WORDS, seed=1)
        key = strop.run_python(SETUP.format(folder=folder, num_turns=NUM_TURNS)).strip().split("\n")[-1]
        strop.stop()
        yield strop, key
    finally:
        strop.remove()


def items() -> list[dict[str, Any]]:
    """Turns as the tiny policy could have sampled them, and for each a signal that decides."""
    draw = random.Random(7)
    at = time.time() - 60
    found: list[dict[str, Any]] = []
    for number in range(NUM_TURNS):
        completion = [draw.randrange(2, 64) for _ in range(6)] + [0]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
        found.append(
            {
                "type": "turn",
                "id": f"turn-{number:03}",
                "session": f"session-{number % 8}",
                "index": number // 8,
                "at": stamp,
                "checkpoint": "editor@1",
                "prompt": f"w{number % 60} w{(number + 1) % 60}",
                "completion": " ".join(WORDS[token - 2] for token in completion[:-1]),
                "prompt_token_ids": [number % 60 + 2, (number + 1) % 60 + 2],
                "completion_token_ids": completion,
                "logprobs": [-4.1] * len(completion),
                "weight_versions": [[0, len(completion), 1]],
                "sampling": {
                    "temperature": 1.0,
                    "top_p": 1.0,
                    "top_k": 0,
                    "max_tokens": 8,
                    "logprobs_mode": "processed",
                },
                "finish_reason": "stop",
                "user": f"user-{number % 8}",
                "surface": "completion",
                "language": "python",
            }
        )
        found.append(
            {
                "type": "signal",
                "id": f"signal-{number:03}",
                "turn": f"turn-{number:03}",
                "kind": "accept" if draw.random() < 0.4 else "reject",
                "at": stamp,
                "user": f"user-{number % 8}",
            }
        )
    return found


ITEMS = items()


OURS = "({0} LIKE 'turn-%' OR {0} LIKE 'signal-%')"  # the gate's own turns come through the gateway and are not items


def send(strop: LiveStrop, key: str, batch: Sequence[dict[str, Any]]) -> None:
    """Send until acknowledged, as a client does: the same ids again after any failure."""

    def is_acknowledged() -> bool:
        answer = httpx.post(
            f"{strop.url}/v1/events", json={"items": batch}, headers={"authorization": f"Bearer {key}"}, timeout=20
        )
        if answer.status_code in (429, 503):
            return False
        assert answer.status_code == 202, answer.text
        assert set(answer.json()["outcomes"]) <= {"accepted", "duplicate"}, answer.text
        return True

    wait_until(is_acknowledged, "the items are acknowledged", 90)


def run_loop(strop: LiveStrop, key: str) -> dict[str, list[tuple[Any, ...]]]:
    """All items in, one update through to its end; returns the rows that must not depend on what was killed."""
    for first in range(0, len(ITEMS), 16):
        send(strop, key, ITEMS[first : first + 16])
    wait_until(
        lambda: strop.rows("SELECT 1 FROM rl_online_updaterun WHERE state IN ('promoted', 'held', 'failed')"),
        f"the update is over\n{strop.log_tails()}",
        240,
    )
    return {
        "items": strop.rows(
            f"SELECT item_id, kind, outcome FROM feedback_ledgeritem WHERE {OURS.format('item_id')} ORDER BY 1"
        ),
        "turns": strop.rows(
            f"SELECT turn_id, outcome, policy, version FROM feedback_turn WHERE {OURS.format('turn_id')} ORDER BY 1"
        ),
        "payloads": strop.rows(
            "SELECT turn_id, completion, completion_token_ids FROM feedback_turnpayload "
            f"WHERE {OURS.format('turn_id')} ORDER BY 1"
        ),
        "signals": strop.rows(
            "SELECT s.signal_id, s.kind, t.turn_id FROM feedback_usersignal s JOIN feedback_turn t ON t.id = s.turn_id "
            "ORDER BY 1"
        ),
        "labels": strop.rows(
            "SELECT t.turn_id, l.outcome, l.value, l.reason FROM feedback_label l "
            "JOIN feedback_turn t ON t.id = l.turn_id ORDER BY 1, 2"
        ),
        "batches": strop.rows("SELECT digest, num_samples, num_tokens, reward_mean FROM rl_online_rewardbatch"),
        "samples": strop.rows("SELECT turn_ref, reward, baseline, slice FROM rl_online_batchsample ORDER BY 1"),
        "updates": strop.rows("SELECT version, state, seed, config_digest, error FROM rl_online_updaterun"),
        "checkpoints": strop.rows(
            "SELECT version, state, tree_digest, optimizer_step FROM registry_checkpoint ORDER BY 1"
        ),
        "serving": strop.rows(
            "SELECT c.version FROM registry_deployment d JOIN registry_checkpoint c ON c.id = d.checkpoint_id"
        ),
        "decisions": strop.rows("SELECT decision, reasons FROM rl_online_gatereport"),
        "stuck jobs": strop.rows("SELECT kind, last_error FROM jobs_job WHERE state = 'quarantined'"),
    }


@pytest.fixture(scope="module")
def start(template: tuple[LiveStrop, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    def make(**environment: str) -> Any:
        root = tmp_path_factory.mktemp("run") / "home"
        return live(root, like=template[0], STROP_JOB_LEASE_S="4", **environment)

    return make


@dataclass(frozen=True)
class Undisturbed:
    """What a run left in which nothing was killed, and how streams ended whose engine was killed after it."""

    rows: dict[str, list[tuple[Any, ...]]]
    streams: list[list[str]]


@pytest.fixture(scope="module")
def undisturbed(start, template) -> Undisturbed:
    with start() as strop:
        rows = run_loop(strop, template[1])
        return Undisturbed(rows, cut_streams(strop, {"authorization": f"Bearer {template[1]}"}))


def cut_streams(strop: LiveStrop, headers: dict[str, str]) -> list[list[str]]:
    """Kill the engine while it streams, until it was in the middle; the lines of each stream. Then it answers again."""
    url, body = f"{strop.url}/v1/completions", {"model": "editor", "prompt": "w1 w2"}
    stream = body | {"max_tokens": 200, "n": 8, "stream": True}
    streams: list[list[str]] = []

    def is_answering() -> bool:
        return httpx.post(url, headers=headers, json=body | {"max_tokens": 2}, timeout=30).status_code == 200

    while len(streams) < 5:  # so small a model may have said all before it is killed; then it was no middle
        wait_until(is_answering, "the engine answers", 90)
        with httpx.stream("POST", url, headers=headers, json=stream, timeout=60) as answer:
            lines = answer.iter_lines()
            first = next(line for line in lines if line.startswith("data: "))
            strop.kill("engine")
            streams.append([first, *(line for line in lines if line)])
        if "data: [DONE]" not in streams[-1]:
            break
    wait_until(is_answering, "the engine answers again", 90)
    return streams


def test_an_uninterrupted_loop_stores_every_item_once_and_promotes(undisturbed):
    rows = undisturbed.rows
    assert [row[0] for row in rows["items"]] == sorted(item["id"] for item in ITEMS)
    assert len(rows["payloads"]) == NUM_TURNS
    assert rows["updates"][0][1] == "promoted", rows["updates"]
    assert rows["serving"] == [(2,)]
    assert rows["stuck jobs"] == []


def test_the_engine_killed_in_the_middle_of_a_stream_is_seen_and_comes_back(undisturbed):
    last = undisturbed.streams[-1]
    assert all("choices" in lines[0] for lines in undisturbed.streams)
    assert "data: [DONE]" not in last, "the engine was never killed in the middle"
    assert any(line.startswith("event: error") or '"error"' in line for line in last)


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(
            [
                "ingest.before_commit",
                "ingest.after_commit",
                "outbox.before_publish",
                "task.feedback.label.mid",
                "task.rl_online.seal_batch.mid",
                "update.before_train",
                "update.after_backward",
                "update.mid_save",
                "task.rl_online.prove.mid",
            ],
            id="from-the-door-to-the-proof",
        ),
        pytest.param(
            ["update.after_snapshot", "update.before_rename", "update.after_rename", "update.mid_publish"],
            id="updater-while-saving",
        ),
    ],
)
def test_killed_at_every_named_point_the_loop_ends_the_same(points, start, template, undisturbed, tmp_path: Path):
    log = tmp_path / "reached"
    with start(CRASH_AT=",".join(points), CRASH_LOG=str(log)) as strop:
        ended = run_loop(strop, template[1])
    assert sorted(log.read_text().split()) == sorted(points)
    assert ended == undisturbed.rows


KEEP_LITTLE = """
from registry.services import all_projects, change_project_settings
from registry.tenancy import tenant
project = all_projects()[0]
with tenant(project.id):
    change_project_settings(project, actor="test", keep_checkpoints=1, keep_rebuildable=1, keep_batches=1)
"""
COLLECT = """
import sys, time
from pathlib import Path
from registry.services import all_projects
from rl_online.services import retention
from rl_online.services.disposal import Report, dispose_orphans
project, times = all_projects()[0], 0
while not Path(sys.argv[1]).exists():
    started = time.monotonic()
    report = Report(is_dry_run=False)
    retention.collect(project.id, actor="test", report=report)
    dispose_orphans(report)
    times += 1
    time.sleep(time.monotonic() - started)
print(times)
"""


def test_collecting_all_the_time_takes_nothing_from_an_update_that_is_killed_nor_from_its_proof(
    start, template, undisturbed, tmp_path
):
    """The strictest settings, half of the time, while a batch is sealed, the updater is killed before its row and the
    engine around its swap, and the gate measures."""
    points = ["update.after_publish", "update.before_row", "engine.before_apply", "engine.after_apply"]
    log, over = tmp_path / "reached", tmp_path / "over"
    with start(CRASH_AT=",".join(points), CRASH_LOG=str(log)) as strop:
        strop.run_python(KEEP_LITTLE)
        old = strop.home.checkpoints / strop.rows("SELECT id::text FROM registry_policy")[0][0] / ".v000009.x.tmp"
        old.mkdir()
        os.utime(old, (0, 0))
        with ThreadPoolExecutor(1) as pool:
            collecting = pool.submit(strop.run_python, f"import sys; sys.argv = ['', {str(over)!r}]\n{COLLECT}")
            try:
                ended = run_loop(strop, template[1])
            finally:
                over.touch()
            assert int(collecting.result(60)) > 20
        assert not old.exists(), "it does collect what nobody needs"
    assert sorted(log.read_text().split()) == sorted(points)
    assert ended == undisturbed.rows
