"""A model becomes a policy in the background: looked after by a job, with every fault said on its row."""

import json
import os
import signal
import time
from uuid import uuid4

import pytest

from jobs import services as jobs
from jobs.models import Job
from registry.errors import Conflict, InvalidInput
from registry.models import Policy
from registry.services import serving_checkpoint
from registry.tenancy import tenant
from rl_online.models import LearningPlan, PolicyImport
from rl_online.policy.tiny import build_tiny_policy
from rl_online.services import policy_imports
from rl_online.services.policy_imports import request_import
from tests.console import factories


@pytest.fixture
def folder(tmp_path):
    return build_tiny_policy(tmp_path / f"mine-{uuid4().hex}", ["a", "b"])  # the store knows models by name


@pytest.fixture(autouse=True)
def no_store_outlives_its_test():
    yield
    for store in policy_imports._stores:
        store.kill()
        store.wait()


@pytest.fixture
def ask(project):
    def request(source, name="mine", **plan):
        with tenant(project.id):
            return request_import(name, str(source), actor="ann", plan=plan)

    return request


def work(project, *, until_s: float = 90) -> PolicyImport:
    """Run the job as workers do, until the import is over."""
    deadline = time.monotonic() + until_s
    while time.monotonic() < deadline:
        Job.objects.filter(kind=policy_imports.IMPORT_JOB, state="queued").update(run_at="2020-01-01T00:00:00Z")
        job = jobs.claim_next(["default"], "test")
        if job is None:
            break
        jobs.run(job)
        time.sleep(0.2)
    with tenant(project.id):
        return PolicyImport.objects.select_related("policy").latest("created_at")


def test_a_folder_becomes_version_1_of_a_policy_that_serves(project, ask, folder):
    ask(folder, promotion="by_person")
    row = work(project)
    assert (row.state, row.error, row.policy.name) == ("registered", "", "mine")
    with tenant(project.id):
        assert str(serving_checkpoint(row.policy)) == "mine@1"
        assert LearningPlan.objects.get(policy=row.policy).promotion == "by_person"
    assert Job.objects.get(kind=policy_imports.IMPORT_JOB).state == "done"


def test_what_is_wrong_with_the_folder_is_said_with_the_file_and_the_fix(project, ask, folder):
    (folder / "tokenizer.json").unlink()
    ask(folder)
    row = work(project)
    assert row.state == "failed" and row.error.startswith("tokenizer.json is missing; save the tokenizer")
    with tenant(project.id):
        assert not Policy.objects.exists()


def test_what_will_not_work_is_noted_though_the_policy_is_made(project, ask, folder):
    for path in folder.glob("chat_template*"):
        path.unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    ask(folder)
    row = work(project)
    assert (row.state, row.error) == ("registered", "")
    assert "chat requests are refused" in row.notes[0]


def test_a_store_that_is_killed_is_started_again(project, ask, folder):
    ask(folder)
    job = jobs.claim_next(["default"], "test")
    jobs.run(job)  # starts the store
    store = policy_imports._stores[-1]
    os.kill(store.pid, signal.SIGKILL)
    store.wait()
    row = work(project)
    assert (row.state, row.num_starts) == ("registered", 2)


def test_a_store_that_dies_each_time_is_given_up(project, ask, folder, monkeypatch):
    monkeypatch.setattr(policy_imports, "_start", lambda row, lock: None)
    ask(folder)
    row = work(project)
    assert row.state == "failed" and "ended 3 times without a word" in row.error


def test_two_workers_never_start_two_stores(project, ask, folder):
    row = ask(folder)
    with policy_imports._free_lock(row) as lock:
        assert lock is not None
        with policy_imports._free_lock(row) as second:
            assert second is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "give the path"),
        ("../x", "whole path"),
        ("~/x", "whole path"),
        ("/nowhere/at/all", "no such folder"),
        ("a b", "write owner/name"),
        ("owner/name/more", "write owner/name"),
        ("-x/y", "write owner/name"),
        ("/etc\0/x", "give the path"),
    ],
)
def test_a_source_that_cannot_be_is_refused_at_once(ask, source, said):
    with pytest.raises(InvalidInput, match=said) as refusal:
        ask(source)
    assert refusal.value.field == "source"


def test_a_folder_outside_the_allowed_ones_is_refused_also_by_a_link(ask, folder, tmp_path, settings):
    settings.MODEL_ROOTS = [str(tmp_path / "allowed")]
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "link").symlink_to(folder)
    for path in (folder, tmp_path / "allowed" / "link", tmp_path / "allowed" / ".." / folder.name):
        with pytest.raises(InvalidInput, match="STROP_MODEL_ROOTS"):
            ask(path)


@pytest.mark.parametrize("name", ["", "Editor", "a b", "-x", "x" * 61, "ü"])
def test_a_name_that_cannot_be_is_refused(ask, folder, name):
    with pytest.raises(InvalidInput) as refusal:
        ask(folder, name)
    assert refusal.value.field == "name"


def test_a_name_that_is_taken_or_being_made_is_refused(project, ask, folder):
    with tenant(project.id):
        factories.make_policy("editor")
    ask(folder, "second")
    for name in ("editor", "second"):
        with pytest.raises(Conflict):
            ask(folder, name)
