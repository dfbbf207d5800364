"""What a full backup holds beside checkpoints and batches, and where a restore puts it."""

from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from registry.tenancy import tenant
from rl_online.models import Corpus, RewardModel, UpdateRun
from strop.backup import archive, restore
from strop.backup.contents import Files, Level, referenced_files
from strop.backup.facts import Facts

FACTS = Facts(
    created_at="2026-12-01T06:00:00Z", code_version="1", migrations=[], postgres_major=16, level="none", rows={},
    missing=[],
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "HOME", type(settings.HOME)(tmp_path / "home"))


@pytest.fixture
def run(policy, judged, sealed) -> UpdateRun:
    judged(), judged()
    return sealed()


@pytest.fixture
def reward_model(project, policy, run) -> RewardModel:
    folder = f"{policy.id}/v{run.version:06d}"
    with tenant(project.id):
        return RewardModel.objects.create(
            policy=policy, run=run, part="all", tree_digest="2" * 64, folder=folder, num_bytes=1, report={}
        )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(level: Level) -> Files:
    return referenced_files(connection.connection, settings.HOME, level)


def test_a_full_one_takes_reward_models_corpora_and_general_texts_and_they_come_back(
    project, run, reward_model, tmp_path
):
    home, model = settings.HOME, f"checkpoints/{reward_model.folder}"
    with tenant(project.id):
        Corpus.objects.create(
            name="c", version=1, digest="c" * 64, state="ready", recipe={}, source="s", made_for=run.parent
        )
        assert {"corpus cccccccccccc", f"reward model {reward_model.folder}"} <= set(found(Level.ALL).missing)
        corpus = f"corpora/{project.id}/{'c' * 64}/rows"
        wanted = {f"{model}/MANIFEST.json", f"{model}/reward.json", corpus, "texts/own.txt"}
        for name in wanted:
            write(home.root / name, name)
        write(home.texts / "notes\\of\nmine", "no set, and no name that an archive takes")
        (home.texts / "link.txt").symlink_to(home.texts / "own.txt")
        everything, serving = found(Level.ALL), found(Level.SERVING)
    assert wanted == {name for name in everything.paths if not name.startswith("batches/")}
    assert not wanted & set(serving.paths)

    target = tmp_path / "b.tar.zst"
    with archive.new_archive(target) as writer:
        for name, path in everything.paths.items():
            writer.add_file(name, path)
        writer.finish({})
    with target.open("rb") as file:
        archive.unpack(file, archive.verify(file), lambda name: tmp_path / "new" / name)
    assert [(tmp_path / "new" / name).read_text() for name in sorted(wanted)] == sorted(wanted)


def test_a_reward_model_whose_files_are_not_in_it_says_so(project, reward_model, tmp_path):
    stage = type(settings.HOME)(tmp_path / "stage")
    with tenant(project.id):
        restore._say_what_is_absent(connection.connection, stage, FACTS)
        reward_model.refresh_from_db()
    assert reward_model.files_deleted_reason == "not in the backup of 2026-12-01T06:00:00Z"


def test_a_home_with_texts_alone_is_in_use(tmp_path):
    assert not restore.is_used(settings.HOME)
    write(settings.HOME.texts / "own.txt", "w1")
    assert restore.is_used(settings.HOME)
