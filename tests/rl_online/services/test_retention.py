"""Retention on real folders: a line of small checkpoints with deltas between them, training state and batches."""

import os
import shutil
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from evals.models import Benchmark, EvalRun
from jobs.models import Job
from registry.errors import Conflict, NotFound
from registry.models import AuditEvent, Checkpoint, Deployment, Policy
from registry.services import change_project_settings, find_checkpoint
from registry.tenancy import tenant
from rl_online.models import Corpus, EngineHolding, LearningPlan, RewardBatch, UpdateRun
from rl_online.services import plans, promotion, rebuilding, retention
from rl_online.services.disposal import Report, dispose_orphans
from rl_online.weights.manifest import verify_folder
from rl_online.weights.publish import publish_delta
from tests.rl_online.weights.folders import nudged, random_tensors, write_folder

COUNT = 15
OLD = time.time() - 3 * 24 * 3600


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Checkpoints and batches of one test."""
    monkeypatch.setattr(settings, "HOME", type(settings.HOME)(tmp_path / "home"))


@pytest.fixture
def line(project) -> Policy:
    """`editor` after 14 promoted updates: 15 serves, 14 served before. Keeps the newest 3, makes 10 again."""
    with tenant(project.id):
        policy = Policy.objects.create(name="editor")
        root = settings.HOME.checkpoints / str(policy.id)
        tensors, parent = random_tensors(), None
        for version in range(1, COUNT + 1):
            folder = write_folder(root / f"v{version:06d}", tensors, version=version, parent=version - 1 or None)
            if parent is not None:
                publish_delta(root / f"v{version - 1:06d}", folder, root / "deltas")
                (root / "train" / folder.name).mkdir(parents=True)
                (root / "train" / folder.name / "optimizer.safetensors").write_bytes(b"o" * 500)
            parent = Checkpoint.objects.create(
                policy=policy,
                version=version,
                parent=parent,
                state="serving" if version == COUNT else "retired",
                tree_digest=verify_folder(folder).tree_digest,
                folder=f"{policy.id}/{folder.name}",
                num_bytes=1,
            )
            tensors = nudged(tensors, seed=version)
        Deployment.objects.create(policy=policy, checkpoint=parent, previous=parent.parent)
        LearningPlan.objects.create(policy=policy, reward_spec=plans.latest_reward_spec())
        change_project_settings(project, actor="test", keep_checkpoints=3, keep_rebuildable=10, keep_batches=2)
    for path in settings.HOME.checkpoints.rglob("*"):
        os.utime(path, (OLD, OLD))
    return policy


def collect(project, *, dry_run: bool = False) -> Report:
    report = Report(is_dry_run=dry_run)
    retention.collect(project.id, actor="test", report=report)
    return report


def on_disk(policy: Policy, below: str = "") -> set[int]:
    root = settings.HOME.checkpoints / str(policy.id) / below
    return {int(path.name[1:]) for path in root.glob("v*")}


def numbers(kept: dict[str, str]) -> dict[int, str]:
    return {int(name.split("@")[1]): why for name, why in kept.items()}


def test_what_is_old_and_not_needed_goes_and_its_row_says_so(project, line):
    report = collect(project)
    kept = numbers(report.kept)
    assert set(kept) == on_disk(line) and {1, 10, 13, 14, 15} <= set(kept)
    assert (kept[15], kept[14], kept[13]) == ("serving", "served before", "one of the newest")
    with tenant(project.id):
        gone = Checkpoint.objects.get(version=7)
        still = Checkpoint.objects.get(version=14)
        events = AuditEvent.objects.filter(verb="delete files", object_id="editor@7")
        assert gone.files_deleted_at is not None and gone.files_deleted_reason
        assert still.files_deleted_at is None and events.count() == 1
    assert report.kinds["checkpoints"].count == COUNT - len(kept) and report.num_bytes > 0


def test_a_dry_run_tells_the_same_and_touches_nothing(project, line):
    told = collect(project, dry_run=True)
    assert on_disk(line) == set(range(1, COUNT + 1))
    with tenant(project.id):
        assert not Checkpoint.objects.filter(files_deleted_at__isnull=False).exists()
    done = collect(project)
    assert told.to_json() | {"dry_run": False} == done.to_json()


def test_training_state_is_kept_for_what_may_be_learnt_from_next(project, line):
    collect(project)
    assert on_disk(line, "train") == {14, 15}


@pytest.mark.parametrize("version", [6, 8, 11])
def test_every_version_of_the_window_can_be_made_again_to_the_byte(project, line, version: int):
    folder = settings.HOME.checkpoints / str(line.id) / f"v{version:06d}"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    collect(project)
    assert not folder.exists()
    rebuilt = rebuilding.rebuild(project.id, f"editor@{version}", actor="test")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert rebuilt.files_deleted_at is None and rebuilt.is_pinned
    assert version in numbers(collect(project).kept), "and the next collection leaves it alone"


def test_what_is_out_of_the_window_cannot_be_made_again_and_is_said_so(project, line):
    collect(project)
    with pytest.raises(Conflict, match="a delta between it and an older checkpoint is gone"):
        rebuilding.rebuild(project.id, "editor@3", actor="test")
    with pytest.raises(NotFound):
        rebuilding.rebuild(project.id, "editor@99", actor="test")


def needs(line: Policy, version: int) -> dict[str, object]:
    """Ways in which something needs that version, each made true."""
    checkpoint = Checkpoint.objects.get(version=version)
    batch = {"policy": line, "kind": "rl", "reward_spec": plans.latest_reward_spec(), "num_samples": 1, "num_tokens": 1}
    run = {"policy": line, "requested_by": "test", "trigger": "person", "config": {}, "config_digest": "", "seed": 1}

    def update(state: str, **columns: object) -> None:
        made = RewardBatch.objects.create(digest=f"{state:0<64}", reward_mean=0.0, **batch)
        UpdateRun.objects.create(batch=made, version=COUNT + 1, state=state, **{"parent": checkpoint, **run, **columns})

    def measured() -> None:
        benchmark = Benchmark.objects.create(name="gate")
        EvalRun.objects.create(benchmark=benchmark, checkpoint=f"editor@{version}", scorer="execution")

    newest = Checkpoint.objects.get(version=COUNT)
    return {
        "pinned": lambda: retention.pin(checkpoint, is_pinned=True, actor="test"),
        "an engine holds it": lambda: EngineHolding.objects.create(engine="e", checkpoint=checkpoint),
        "canary": lambda: Deployment.objects.update(canary=checkpoint),
        "the newest candidate": lambda: Checkpoint.objects.filter(pk=checkpoint.pk).update(state="candidate"),
        "an update learns from it": lambda: update("training"),
        "at the gate": lambda: update("proving", parent=newest, checkpoint=checkpoint),
        "waits for a person": lambda: update("waiting", parent=newest, checkpoint=checkpoint),
        "being measured": measured,
        "a corpus is made with its tokenizer": lambda: Corpus.objects.create(
            name="code", version=1, made_for=checkpoint, source="code", recipe={}
        ),
    }


@pytest.mark.parametrize(
    "why",
    [
        "pinned",
        "an engine holds it",
        "canary",
        "the newest candidate",
        "an update learns from it",
        "at the gate",
        "waits for a person",
        "being measured",
        "a corpus is made with its tokenizer",
    ],
)
def test_what_something_needs_is_never_deleted(project, line, why: str):
    with tenant(project.id):
        needs(line, 4)[why]()
    assert numbers(collect(project).kept)[4] == why
    assert 4 in on_disk(line)


def test_what_an_engine_said_long_ago_does_not_count(project, line):
    with tenant(project.id):
        EngineHolding.objects.create(engine="gone", checkpoint=Checkpoint.objects.get(version=4))
        EngineHolding.objects.update(reported_at=timezone.now() - timedelta(hours=1))
    assert 4 not in numbers(collect(project).kept)


def test_a_checkpoint_without_files_is_neither_promoted_nor_rolled_back_to(project, line):
    collect(project)
    with tenant(project.id):
        with pytest.raises(Conflict, match=r"the files of editor@7 were deleted .*`strop gc --rebuild editor@7`"):
            promotion.roll_back(line, actor="test", reason="worse", version=7)
        Checkpoint.objects.filter(version=7).update(state="candidate")
        with pytest.raises(Conflict, match="the files of editor@7 were deleted"):
            promotion.promote(find_checkpoint("editor@7"), actor="test", reason="why not")
        with pytest.raises(Conflict, match="files of editor@7 are deleted"):
            retention.pin(find_checkpoint("editor@7"), is_pinned=True, actor="test")
        assert promotion.roll_back(line, actor="test", reason="worse").checkpoint.version == 14


def test_a_collection_that_was_killed_is_finished_by_the_next(project, line, monkeypatch: pytest.MonkeyPatch):
    """The rows are written and then the process dies before, and in the middle of, deleting."""

    def dies(point: str) -> None:
        if point == "gc.mid_delete":
            raise SystemExit("killed")

    with monkeypatch.context() as killed, pytest.raises(SystemExit):
        killed.setattr("jobs.crash.point", dies)
        collect(project)
    left = on_disk(line)
    assert {3, 4, 5} <= left, "most folders are still there, though their rows say deleted"
    report = collect(project)
    assert on_disk(line) == set(numbers(report.kept))
    drafts = list(settings.HOME.checkpoints.rglob(".*.tmp"))
    assert len(drafts) == 1
    os.utime(drafts[0], (OLD, OLD))
    for path in drafts[0].rglob("*"):
        os.utime(path, (OLD, OLD))
    dispose_orphans(report)
    assert not drafts[0].exists() and report.kinds["orphans"].count == 1


@pytest.mark.django_db(transaction=True)
def test_a_collection_waits_for_a_rollback_under_way_and_spares_what_it_brings_back(project, line):
    """The rollback has the deployment's lock; the collection decides after it."""
    holds, go_on = threading.Event(), threading.Event()

    def roll_back() -> None:
        try:
            with tenant(project.id):
                promotion.roll_back(line, actor="test", reason="worse", version=7)
                holds.set()
                assert go_on.wait(20)
        finally:
            connection.close()

    thread = threading.Thread(target=roll_back)
    thread.start()
    assert holds.wait(20)
    waker = threading.Timer(0.5, go_on.set)
    waker.start()
    report = collect(project)
    thread.join()
    assert numbers(report.kept)[7] == "serving" and 7 in on_disk(line)


@pytest.mark.django_db(transaction=True)
def test_a_collection_does_not_start_while_a_backup_copies_files(project, line):
    locked, done = threading.Event(), threading.Event()

    def back_up() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [retention.LOCK])
                locked.set()
                assert done.wait(20)
        finally:
            connection.close()

    thread = threading.Thread(target=back_up)
    thread.start()
    assert locked.wait(20)
    with pytest.raises(Conflict, match="a backup or another collection is under way"):
        collect(project)
    done.set()
    thread.join()
    assert on_disk(line) == set(range(1, COUNT + 1))


def test_backups_and_retention_mean_the_same_lock():
    from strop.backup.make import RETENTION_LOCK

    assert RETENTION_LOCK == retention.LOCK


def test_batches_that_are_old_and_taught_nothing_kept_go(project, line):
    with tenant(project.id):
        spec = plans.latest_reward_spec()
        columns = {"policy": line, "kind": "rl", "reward_spec": spec, "num_samples": 1, "num_tokens": 1}
        for number in range(5):
            RewardBatch.objects.create(digest=f"{number}" * 64, reward_mean=0.0, **columns)
            (settings.HOME.batches / (f"{number}" * 64)).mkdir(parents=True)
    os.utime(settings.HOME.batches / ("0" * 64), (OLD, OLD))
    for path in settings.HOME.batches.iterdir():
        os.utime(path, (OLD, OLD))
    report = collect(project)
    assert {path.name[0] for path in settings.HOME.batches.iterdir()} == {"3", "4"}
    assert report.kinds["batches"].count == 3
    with tenant(project.id):
        assert RewardBatch.objects.filter(files_deleted_at__isnull=False).count() == 3


def test_leftovers_of_crashes_go_after_a_day_and_not_before(project, line):
    root = settings.HOME.checkpoints / str(line.id)
    old = [root / "v000099", root / ".v000098.abc.tmp", root / "train" / "v000099", settings.HOME.batches / ("f" * 64)]
    young = [root / "v000097", settings.HOME.batches / ("e" * 64)]
    for path in [*old, *young]:
        path.mkdir(parents=True)
        (path / "file").write_bytes(b"x" * 100)
    for path in old:
        os.utime(path / "file", (OLD, OLD))
        os.utime(path, (OLD, OLD))
    report = Report(is_dry_run=False)
    dispose_orphans(report)
    assert [path for path in old if path.exists()] == []
    assert all(path.exists() for path in young)
    assert on_disk(line) == {*range(1, COUNT + 1), 97}, "what has a row is no orphan"
    assert (report.kinds["orphans"].count, report.kinds["orphans"].bytes) == (4, 400)


def test_the_folder_of_an_update_under_way_is_no_orphan(project, line):
    with tenant(project.id):
        needs(line, COUNT)["an update learns from it"]()
    making = settings.HOME.checkpoints / str(line.id) / f"v{COUNT + 1:06d}"
    making.mkdir()
    os.utime(making, (OLD, OLD))
    dispose_orphans(Report(is_dry_run=False))
    assert making.exists()


def test_checkpoints_that_are_published_or_deleted_meanwhile_do_not_end_a_search_for_orphans(line):
    root, over, published = settings.HOME.checkpoints / str(line.id), threading.Event(), []

    def publish() -> None:
        while not over.is_set():
            draft, final = root / ".v000050.x.tmp", root / "v000050"
            draft.mkdir()
            for name in range(20):
                (draft / f"{name}").write_bytes(b"w")
            draft.rename(final)
            shutil.rmtree(final)
            published.append(final)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        until = time.monotonic() + 2
        while time.monotonic() < until or len(published) < 100:
            dispose_orphans(report := Report(is_dry_run=False))
            assert not report.kinds
    finally:
        over.set()
        thread.join()


def test_a_file_that_is_linked_from_elsewhere_is_not_counted_as_freed(project, line, tmp_path: Path):
    folder = settings.HOME.checkpoints / str(line.id) / "v000002"
    shutil.copytree(folder, tmp_path / "kept", copy_function=os.link)
    sizes = collect(project, dry_run=True)
    shutil.rmtree(tmp_path / "kept")
    assert collect(project, dry_run=True).num_bytes > sizes.num_bytes


def test_a_weekly_collection_is_asked_for_only_where_the_setting_is_on(project, other_project, line):
    with tenant(project.id):
        change_project_settings(project, actor="test", collect_weekly=True)
    retention.ask_weekly()
    retention.ask_weekly()
    assert list(Job.objects.filter(kind="rl_online.retention").values_list("project_id", flat=True)) == [project.id]
    collect(project)
    Job.objects.all().delete()
    retention.ask_weekly()
    assert not Job.objects.filter(kind="rl_online.retention").exists(), "one was just done"
