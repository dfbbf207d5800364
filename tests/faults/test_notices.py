"""kill -9 between a receiver's answer and our row: the notice arrives again under the same number, and is sent once."""

import time

import pytest

from tests.live import live, wait_until
from tests.registry.receiver import receiving

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

NOTICE = """
from registry.channels import create_channel
from registry.notifications import emit
from registry.services import all_projects
from registry.tenancy import tenant
project = all_projects()[0]
with tenant(project.id):
    create_channel("hook", "webhook", {url!r}, ["update.failed"], actor="test")
    emit("update.failed", project.id, {{"title": "The update failed"}}, key="run-1")
"""


def test_a_worker_killed_after_the_answer_sends_again_and_there_is_one_delivery(tmp_path):
    log = tmp_path / "reached"
    left_out = ("--without", "engine", "--without", "updater")
    with receiving() as receiver:
        environment = {
            "STROP_OUTBOUND_ALLOW": f"127.0.0.1:{receiver.port}",
            "STROP_JOB_LEASE_S": "4",
            "CRASH_AT": "task.registry.deliver.mid",
            "CRASH_LOG": str(log),
        }
        with live(tmp_path / "home", *left_out, **environment) as strop:
            strop.run_python(NOTICE.format(url=receiver.url))
            sent = "SELECT state, jsonb_array_length(attempts) FROM registry_noticedelivery"
            wait_until(lambda: strop.rows(sent) == [("sent", 1)], "the delivery is written as sent", 90)
            time.sleep(2)
            assert strop.rows("SELECT count(*) FROM jobs_job WHERE kind = 'registry.deliver' AND state <> 'done'") == [
                (0,)
            ]
    assert log.read_text().split() == ["task.registry.deliver.mid"]
    assert len(receiver.got) == 2
    assert len({headers["strop-delivery"] for headers, _ in receiver.got}) == 1
