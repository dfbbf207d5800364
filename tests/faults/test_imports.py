"""An import killed in the middle: what is stored says so, and importing again completes it, once."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import CHECKOUT, live, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

NUM_RESULTS = 20_000
COUNTS = "SELECT count(*), count(DISTINCT (problem_id, scorer, repeat)) FROM evals_score"


def written(folder: Path) -> Path:
    """A run of the harness with many documents."""
    stamp = "2026-01-01T00-00-00"
    row = {"sample_len": NUM_RESULTS, "acc,none": 1.0, "acc_stderr,none": 0.0}
    results = folder / f"results_{stamp}.json"
    results.write_text(json.dumps({"results": {"t": row}, "n-shot": {"t": 0}, "date": 1767225600.5}))
    with (folder / f"samples_t_{stamp}.jsonl").open("w") as file:
        for number in range(NUM_RESULTS):
            sample = {
                "doc_id": number,
                "target": "a",
                "filter": "none",
                "metrics": ["acc"],
                "acc": 1.0,
                "resps": [["a"]],
            }
            file.write(json.dumps(sample) + "\n")
    return results


def test_an_import_that_is_killed_goes_on_when_it_is_started_again(tmp_path: Path):
    path = written(tmp_path)
    with live(tmp_path / "home", "--without", "updater", "--without", "engine") as strop:
        command = [
            sys.executable,
            "-m",
            "strop.cli",
            "--home",
            str(tmp_path / "home"),
            "import",
            "runs",
            str(path),
            "--json",
        ]
        here = {"cwd": CHECKOUT, "env": strop.env}
        killed = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **here
        )
        wait_until(lambda: strop.rows(COUNTS)[0][0] >= 1000, "some results are stored", 60)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        before = strop.rows(COUNTS)[0][0]
        assert before < NUM_RESULTS
        assert strop.rows("SELECT state FROM evals_evalrun") == [("running",)]

        again = subprocess.run(command, capture_output=True, text=True, check=True, **here)
        (found,) = json.loads(again.stdout)["imported"]
        assert (found["outcome"], found["num_known"], found["num_new"]) == ("imported", before, NUM_RESULTS - before)
        assert strop.rows(COUNTS) == [(NUM_RESULTS, NUM_RESULTS)]
        assert strop.rows("SELECT state FROM evals_evalrun") == [("done",)]
