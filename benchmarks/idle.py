"""What Strop costs while nobody uses it: processor time of each process, with a policy that serves and turns that wait.

`strop up` runs in a temporary home with a tiny policy and 300 labelled turns, too few for the next update; after a
minute of rest the time that each supervised process and its children take is read from /proc. Percent of one core.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from tests.live import LiveStrop

RESULTS = Path(__file__).parent / "results"
NUM_TURNS = 300
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETUP = """
from pathlib import Path
from registry.services import all_projects, create_key
from registry.tenancy import tenant
from rl_online.policy.tiny import build_tiny_policy
from rl_online.services.plans import start_policy

project = all_projects()[0]
folder = build_tiny_policy(Path(r"{root}") / "tiny", [f"w{{n}}" for n in range(62)], seed=1)
start_policy(project.id, name="editor", folder=folder, every_turns=384)
with tenant(project.id):
    print(create_key("idle", ["ingest", "infer"], actor="benchmark")[0])
"""


def items() -> list[dict[str, object]]:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60))
    found: list[dict[str, object]] = []
    for number in range(NUM_TURNS):
        turn = {"type": "turn", "id": f"t{number}", "session": f"s{number // 4}", "index": number % 4, "at": at}
        turn |= {"checkpoint": "editor@1", "prompt": "w1 w2", "completion": "w3", "user": f"u{number % 20}"}
        turn |= {"prompt_token_ids": [2, 3], "completion_token_ids": [4, 0], "logprobs": [-0.5, -0.5]}
        turn |= {"weight_versions": [[0, 2, 1]], "sampling": {"temperature": 1.0, "logprobs_mode": "processed"}}
        found += [turn, {"type": "signal", "id": f"g{number}", "turn": f"t{number}", "kind": "accept", "at": at}]
    return found


def families(pids: dict[str, int]) -> dict[str, list[int]]:
    """Each process with all its descendants."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {}
    for name, pid in pids.items():
        family, more = [pid], [pid]
        while more := [child for child, parent in parents.items() if parent in more]:
            family += more
        found[name] = family
    return found


def seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def measure(pids: dict[str, int], span_s: float) -> dict[str, float]:
    """Percent of one core, by process."""
    groups = families(pids)
    before, started = {pid: seconds(pid) for group in groups.values() for pid in group}, time.monotonic()
    time.sleep(span_s)
    passed_s = time.monotonic() - started
    return {
        name: 100 * sum(max(0.0, seconds(pid) - before[pid]) for pid in group) / passed_s
        for name, group in groups.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rest", type=float, default=60.0, help="seconds before measuring (default 60)")
    parser.add_argument("--span", type=float, default=60.0, help="seconds measured (default 60)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strop-idle-") as scratch:
        strop = LiveStrop(Path(scratch) / "home")
        strop.root.mkdir()
        try:
            strop.start()
            key = strop.run_python(SETUP.format(root=scratch)).strip().split("\n")[-1]
            headers = {"authorization": f"Bearer {key}"}
            sent = httpx.post(f"{strop.url}/v1/events", json={"items": items()}, headers=headers, timeout=60)
            assert sent.json()["outcomes"] == {"accepted": 2 * NUM_TURNS}, sent.text
            time.sleep(options.rest)
            state = json.loads((strop.home.run / "state.json").read_text())
            shares = measure({row["name"]: row["pid"] for row in state["processes"]}, options.span)
        finally:
            strop.stop()
            strop.remove()
    for name, percent in shares.items():
        print(f"RESULT idle.cpu_percent.{name}={percent:.2f}")
    print(f"RESULT idle.cpu_percent={sum(shares.values()):.2f}")
    RESULTS.mkdir(exist_ok=True)
    facts = {
        "cpu_percent": shares,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "span_s": options.span,
    }
    (RESULTS / "idle.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
