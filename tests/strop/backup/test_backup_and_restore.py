"""A running product is backed up while users write to it, killed, and restored elsewhere: rows, weights and pages."""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rl_online.policy.tiny import build_tiny_policy
from rl_online.weights.manifest import verify_folder
from strop.backup.database import Server
from strop.home import Home
from strop.local import binaries
from tests.live import CHECKOUT, LiveStrop, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

SETUP = """
from pathlib import Path
from registry.services import all_projects, create_key
from registry.tenancy import tenant
from rl_online.services.plans import start_policy

project = all_projects()[0]
start_policy(project.id, name="editor", folder=Path(r"{folder}"), every_turns=100_000, max_turns=100_000)
with tenant(project.id):
    print(create_key("backup test", ["ingest", "infer", "read"], actor="test")[0])
"""


def set_up(strop: LiveStrop) -> str:
    """Give it a tiny policy; returns a key."""
    folder = build_tiny_policy(strop.root / "tiny", [f"w{n}" for n in range(62)], seed=1)
    return strop.run_python(SETUP.format(folder=folder)).strip().split("\n")[-1]


class Users(threading.Thread):
    """Send turns and signals as fast as they are taken; remember what was acknowledged, and when."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[str, float] = {}  # item id -> when its request was sent
        self.answered: dict[str, float] = {}  # item id -> when the answer was here
        self.stopping = threading.Event()
        self._url, self._key = url, key

    def run(self) -> None:
        number = 0
        with httpx.Client(headers={"authorization": f"Bearer {self._key}"}, timeout=10) as client:
            while not self.stopping.is_set():
                items = [item for n in range(20) for item in self._turn(number + n)]
                number += 20
                sent = time.time()
                try:
                    answer = client.post(f"{self._url}/v1/events", json={"items": items})
                except httpx.HTTPError:
                    continue  # the product was killed under us
                if answer.status_code == 202:
                    assert set(answer.json()["outcomes"]) == {"accepted"}, answer.text
                    self.acknowledged |= {item["id"]: sent for item in items}
                    self.answered |= {item["id"]: time.time() for item in items}

    def _turn(self, number: int) -> list[dict[str, Any]]:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        turn = {"type": "turn", "id": f"t{number}", "session": f"s{number // 4}", "index": number % 4, "at": at}
        turn |= {"checkpoint": "editor@1", "prompt": f"w{number % 60}", "completion": "w1 w2", "user": f"u{number % 9}"}
        signal = {"type": "signal", "id": f"g{number}", "turn": f"t{number}", "kind": "accept", "at": at}
        return [turn, signal]


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveStrop, str]]:
    """A running product with a tiny policy, and a key; killed or not by the tests, it is removed at the end."""
    strop = LiveStrop(tmp_path_factory.mktemp("product") / "home")
    strop.root.mkdir()
    try:
        strop.prepare()
        strop.start("--without", "updater", "--without", "engine")
        key = set_up(strop)
        yield strop, key
    finally:
        if strop.process is not None:
            strop.stop()
        strop.remove()


@pytest.fixture(scope="module")
def archive(
    product: tuple[LiveStrop, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict, Users, tuple]:
    """A backup made under load, what it said, the users, and (begun, ended); the product is killed right after."""
    strop, key = product
    users = Users(strop.url, key)
    users.start()
    wait_until(lambda: len(users.answered) > 200, "users have sent much")
    target = tmp_path_factory.mktemp("backups") / "b.tar.zst"
    begun = time.time()
    said = strop.strop("backup", str(target))
    ended = time.time()
    wait_until(lambda: sum(at > ended for at in list(users.acknowledged.values())) > 40, "users go on")
    assert strop.process is not None
    strop.process.kill()
    strop.process.wait()
    strop.process.stdout.close()  # type: ignore[union-attr]
    strop.process = None
    users.stopping.set()
    users.join()
    assert any(at < begun for at in users.answered.values()) and any(at > ended for at in users.acknowledged.values())
    return target, said, users, (begun, ended)


@pytest.fixture(scope="module")
def restored(archive: tuple, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStrop]:
    """The backup as a running product in a new home, with its engine."""
    other = LiveStrop(tmp_path_factory.mktemp("restored") / "home")
    try:
        said = other.strop("restore", str(archive[0]))
        assert (said["old_home"], said["missing"]) == (None, [])
        other.start("--without", "updater")
        yield other
    finally:
        if other.process is not None:
            other.stop()
        other.remove()


def command(home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "strop.cli", "--home", str(home), *map(str, words)]
    return subprocess.run(line, cwd=CHECKOUT, env=LiveStrop(home).env, capture_output=True, text=True, timeout=300)


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below the folder by its content, but for the secrets that a look at a home makes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "secrets" not in path.parts
    }


def rows_of(home: Home, table: str) -> list[str]:
    """The table's rows as pg_dump writes them, sorted."""
    dumped = Server.embedded(home)
    line = [binaries.postgres_bin(None) / "pg_dump", "--data-only", f"--table={table}", f"--host={home.sockets}"]
    said = subprocess.run(
        [*line, "--username=strop_owner", "strop"],
        env={"PGPASSWORD": dumped.password},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return sorted(line for line in said.splitlines() if "\t" in line)


def test_everything_acknowledged_before_the_backup_is_in_it_and_nothing_sent_after(archive: tuple, restored: LiveStrop):
    _, _, users, (begun, ended) = archive
    there = {item for (item,) in restored.rows("SELECT item_id FROM feedback_ledgeritem")}
    before = {item for item, at in users.answered.items() if at < begun}
    after = {item for item, at in users.acknowledged.items() if at > ended}
    assert len(before) > 100 and before <= there
    assert len(after) > 20 and not after & there


def test_the_restored_rows_are_of_one_moment(restored: LiveStrop):
    """What one transaction wrote is there together: ledger, turns, payloads, signals and the counts of outcomes."""
    one = "SELECT count(*) FROM"
    turns = restored.rows(f"{one} feedback_turn")[0][0]
    assert turns == restored.rows(f"{one} feedback_ledgeritem WHERE kind = 'turn'")[0][0]
    assert turns == restored.rows(f"{one} feedback_turnpayload")[0][0]
    signals = restored.rows(f"{one} feedback_usersignal")[0][0]
    accepted = restored.rows("SELECT sum(count) FROM feedback_outcomecount WHERE outcome = 'accepted'")[0][0]
    assert accepted == turns + signals


def test_the_serving_checkpoint_is_the_same_to_the_byte_and_answers(product: tuple, restored: LiveStrop):
    [(folder, digest)] = restored.rows("SELECT folder, tree_digest FROM registry_checkpoint")
    assert verify_folder(restored.home.checkpoints / folder).tree_digest == digest
    assert fingerprint(restored.home.checkpoints) == fingerprint(product[0].home.checkpoints)
    asked = {"model": "editor", "prompt": "w1 w2", "max_tokens": 4}
    key = {"authorization": f"Bearer {product[1]}"}

    def answer() -> dict[str, Any] | None:
        said = httpx.post(f"{restored.url}/v1/completions", json=asked, headers=key, timeout=60)
        return said.json() if said.status_code == 200 else None  # 503 until the engine has fetched it

    assert wait_until(answer, "the engine answers", 60)["model"] == "editor@1"


def test_what_was_signed_before_still_opens_the_pages(product: tuple, restored: LiveStrop):
    """The signing key is in the backup, so a sign-in link of the old home opens the new one."""
    secret = "secrets/django"
    assert (product[0].root / secret).read_text() == (restored.root / secret).read_text()
    for name in ("postgres-owner", "postgres-app", "internal", "home-id"):
        assert (product[0].root / "secrets" / name).read_text() != (restored.root / "secrets" / name).read_text()


def test_a_spoilt_archive_is_refused_and_nothing_is_touched(archive: tuple, product: tuple, tmp_path: Path):
    home = product[0].root  # killed, not empty, and asked to be replaced
    whole = archive[0].read_bytes()
    cut, flipped = tmp_path / "cut", tmp_path / "flipped"
    cut.write_bytes(whole[: len(whole) // 2])
    flipped.write_bytes(whole[: len(whole) // 3] + bytes([whole[len(whole) // 3] ^ 4]) + whole[len(whole) // 3 + 1 :])
    before, beside = fingerprint(home), sorted(home.parent.iterdir())
    for spoilt in (cut, flipped):
        refused = command(home, "restore", spoilt, "--replace")
        assert refused.returncode == 1
        assert "is not restored" in refused.stderr and "Nothing was touched" in refused.stderr
    assert fingerprint(home) == before and sorted(home.parent.iterdir()) == beside


def test_a_home_that_is_not_empty_is_refused(archive: tuple, product: tuple):
    home = product[0].root
    before = fingerprint(home)
    refused = command(home, "restore", archive[0])
    assert refused.returncode == 1 and "is not empty; with --replace it is moved aside" in refused.stderr
    assert fingerprint(home) == before


def test_a_stopped_home_is_backed_up_and_restored_row_by_row_and_the_old_one_still_starts(tmp_path: Path):
    quiet = ("--without", "updater", "--without", "engine", "--without", "worker", "--without", "beat")
    strop, started = LiveStrop(tmp_path / "home"), []
    strop.root.mkdir()
    try:
        started.append(strop)
        strop.prepare()
        strop.start(*quiet)
        set_up(strop)
        strop.stop()
        made = strop.strop("backup")
        done = strop.strop("restore", made["file"], "--replace")
        assert Path(made["file"]).is_file(), "backups stay with the place"

        aside = LiveStrop(Path(done["old_home"]))
        started.append(aside)
        strop.start(*quiet)
        aside.start(*quiet)
        tables = {name for (name,) in strop.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
        tables -= {"jobs_processbeat"}  # both live
        differing = [name for name in sorted(tables) if rows_of(strop.home, name) != rows_of(aside.home, name)]
        assert len(tables) > 30 and differing == []
    finally:
        for one in started:
            if one.process is not None:
                one.stop()
            one.remove()
