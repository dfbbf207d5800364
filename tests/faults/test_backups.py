"""A backup asked for on the System page, killed on its way: no half is offered, one whole is made, and it restores."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.live import LiveStrop, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

PAGE = "/p/default/settings/system"
QUIET = ("--without", "engine", "--without", "updater")
CRASHES = ["backup.before_announce", "backup.mid_archive"]  # the worker, then the process that writes
ITEMS = [
    {"type": "turn", "id": "t1", "session": "s1", "at": "2026-11-30T06:00:00Z", "model": "m", "prompt": "1 + 1 =",
     "completion": "2", "source": "import"},
    {"type": "signal", "id": "g1", "turn": "t1", "kind": "accept", "at": "2026-11-30T06:00:01Z", "source": "import"},
]  # fmt: skip


class Owner:
    """Somebody who signed in by the link, as a browser does."""

    def __init__(self, strop: LiveStrop, link: str) -> None:
        self.http = httpx.Client(base_url=strop.url, follow_redirects=True, timeout=30)
        assert self.http.get(link).status_code == 200

    def page(self) -> str:
        answer = self.http.get(PAGE)
        assert answer.status_code == 200
        return answer.text

    def press_back_up_now(self) -> str:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.page())
        assert token is not None
        answer = self.http.post(f"{PAGE}/backup", data={"csrfmiddlewaretoken": token[1], "level": "all"})
        assert answer.status_code == 200
        return answer.text


def offered(page: str) -> list[str]:
    return re.findall(r"<code>(strop-\w+(?:-\d)?\.tar\.zst[^<]*)</code>", page)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveStrop, Owner, list[str]]]:
    """A Strop whose backup was killed twice on its way and then a worker with it; the points that were reached."""
    root = tmp_path_factory.mktemp("pressed")
    log = root / "reached"
    crash = {"CRASH_AT": ",".join(CRASHES), "CRASH_LOG": str(log), "STROP_JOB_LEASE_S": "4"}
    strop = LiveStrop(root / "home", crash)
    strop.root.mkdir()
    try:
        strop.prepare()
        first = strop.start(*QUIET)
        sent = httpx.post(
            f"{strop.url}/v1/events", json={"items": ITEMS}, headers={"authorization": f"Bearer {first['key']}"}
        )
        assert sent.json()["outcomes"] == {"accepted": 2}
        wait_until(lambda: strop.rows("SELECT 1 FROM feedback_turn WHERE outcome = 'accept'"), "the turn is labelled")
        owner = Owner(strop, first["sign_in"])
        assert "The backup begins in a moment" in owner.press_back_up_now()
        wait_until(lambda: log.exists() and log.read_text().split() == CRASHES, "both points are reached", 90)
        yield strop, owner, log.read_text().split()
    finally:
        if strop.process is not None:
            strop.stop()
        strop.remove()


@pytest.fixture(scope="module")
def made(killed: tuple[LiveStrop, Owner, list[str]]) -> Path:
    """The archive that was made in the end, with the worker killed once more while its process was at work."""
    strop, owner, _ = killed
    assert offered(owner.page()) == [], "half an archive is none"
    wait_until(lambda: strop.strop("status")["backup"]["state"] != "failed", "the next attempt has begun", 60)
    strop.kill("worker")
    wait_until(lambda: strop.strop("status")["backup"]["state"] == "done", "the backup is made", 90)
    return Path(strop.strop("status")["backup"]["file"])


def test_after_three_kills_one_whole_archive_is_offered_and_no_half_is_left(killed, made: Path):
    strop, owner, _ = killed
    wait_until(
        lambda: strop.rows("SELECT state, attempts FROM jobs_job WHERE kind = 'strop.backup'")[0][0] == "done",
        "the job is done", 90,
    )  # fmt: skip
    assert offered(owner.page()) == [made.name]
    assert sorted(path.name for path in made.parent.iterdir()) == [made.name, f"{made.name}.json"]
    assert len(list((strop.root / "logs").glob("backup.log"))) == 1


def test_it_cannot_be_pressed_again_at_once(killed, made: Path):
    assert "began less than 10 minutes ago" in killed[1].press_back_up_now()


def test_a_new_home_made_from_it_holds_the_same_rows_and_serves(killed, made: Path, tmp_path: Path):
    strop, owner, _ = killed
    other = LiveStrop(tmp_path / "home")
    try:
        said = other.strop("restore", str(made))
        assert (said["missing"], said["level"]) == ([], "all")
        other.start(*QUIET)
        for table in ("feedback_ledgeritem", "feedback_turn", "feedback_label", "registry_apikey", "auth_user"):
            rows = f"SELECT to_jsonb(t) - 'last_used_at' FROM {table} t ORDER BY 1"
            assert other.rows(rows) == strop.rows(rows), table
        session = httpx.Client(base_url=other.url, cookies=owner.http.cookies, follow_redirects=True, timeout=30)
        page = session.get("/p/default/turns")
        assert page.status_code == 200 and "t1" in page.text, "who was signed in still is, and sees the turn"
    finally:
        if other.process is not None:
            other.stop()
        other.remove()
