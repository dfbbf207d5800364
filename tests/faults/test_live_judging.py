"""A worker killed while ten sessions are judged: each is judged, and exactly once."""

import time
from pathlib import Path

import httpx
import pytest

from tests.evals.services.judge_server import JudgeServer
from tests.live import live, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

POINTS = ("task.rl_online.open_ratings.mid", "task.rl_online.rate_session.mid", "task.evals.rate_live.mid")
OURS = "kind IN ('rl_online.open_ratings', 'rl_online.rate_session', 'evals.rate_live')"
SETUP = """
from evals.services.judges import change_duty, create_judge
from registry.services import all_projects, create_key
from registry.tenancy import tenant

project = all_projects()[0]
with tenant(project.id):
    judge = create_judge(name="marks", model="judge-1", endpoint="{url}", actor="test")
    change_duty(judge, actor="test", live="session", idle_s=2)
    print(create_key("fault test", ["ingest"], actor="test")[0])
"""


def test_f30_ten_sessions_that_end_together_are_judged_once_each_while_workers_are_killed(tmp_path: Path):
    server = JudgeServer(lambda model, data, n: (200, '{"rationale": "fine", "score": 4}'))
    log = tmp_path / "crashes"
    left_out = ("--without", "updater", "--without", "engine")
    crash = {"CRASH_AT": ",".join(POINTS), "CRASH_LOG": str(log), "STROP_JOB_LEASE_S": "4"}
    with live(tmp_path / "home", *left_out, STROP_OUTBOUND_ALLOW="127.0.0.1", **crash) as strop:
        key = strop.run_python(SETUP.format(url=server.url)).strip().split("\n")[-1]
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        items = [
            item
            for n in range(10)
            for item in (
                {
                    "type": "turn", "id": f"turn-{n}", "session": f"session-{n}", "at": at, "model": "gpt-5",
                    "prompt": f"write {n}", "completion": f"{n}", "finish_reason": "stop", "user": f"user-{n}",
                },
                {"type": "signal", "id": f"signal-{n}", "turn": f"turn-{n}", "kind": "accept", "at": at},
            )
        ]  # fmt: skip
        sent = httpx.post(f"{strop.url}/v1/events", json={"items": items}, headers={"authorization": f"Bearer {key}"})
        assert sent.status_code == 202 and sent.json()["outcomes"] == {"accepted": 20}
        scored = "SELECT count(*) FROM evals_liverating WHERE state = 'scored'"
        wait_until(lambda: strop.rows(scored)[0][0] == 10, "ten sessions are judged", 150)
        wait_until(
            lambda: strop.rows(f"SELECT count(*) FROM jobs_job WHERE state <> 'done' AND {OURS}")[0][0] == 0,
            "no work is left",
        )
        assert strop.rows("SELECT count(*), count(DISTINCT subject_ref) FROM evals_liverating") == [(10, 10)]
        assert strop.rows("SELECT count(*), count(DISTINCT rating_id) FROM evals_judgecall") == [(10, 10)]
    assert set(log.read_text().split()) == set(POINTS), "a worker died at each point"
    server.close()
