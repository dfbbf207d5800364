"""`strop up` as a person meets it: one instance for this file, its home below a folder only we may enter."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from strop.home import Home
from strop.local.guard import MARK
from strop.local.lock import is_locked, read_state
from strop.local.ports import claim_port
from strop.local.postgres import Postgres, cluster_processes
from strop.local.remove import remove

pytestmark = pytest.mark.faults
STROP = [sys.executable, "-m", "strop.cli"]


@dataclass(frozen=True)
class Site:
    process: subprocess.Popen[str]
    home: Home
    port: int
    ready_line: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pid(self, name: str) -> int | None:
        return next(row["pid"] for row in read_state(self.home)["processes"] if row["name"] == name)

    def ready(self) -> str | None:
        """The status that /readyz tells; None when nobody answers."""
        return json.loads(body)["status"] if (body := get(f"{self.url}/readyz")) else None


def get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
    except OSError:
        return None


def until(fact: Callable[[], object], timeout_s: float = 30) -> object:
    deadline = time.monotonic() + timeout_s
    while not (found := fact()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
    return found


def start(root: Path, port: int, *options: str, **settings: str) -> Site:
    inherited = {key: value for key, value in os.environ.items() if key not in ("STROP_HOME", "DATABASE_URL")}
    environment = inherited | settings
    command = [*STROP, "--home", str(root), "up", "--port", str(port), "--without", "engine", "--without", "updater"]
    with (root.parent / f"{root.name}.err").open("w") as errors:
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
    line = process.stdout.readline()
    if not line:
        process.wait()
        process.stdout.close()
        raise AssertionError((root.parent / f"{root.name}.err").read_text()[-3000:])
    return Site(process, Home(root), port, line)


def end(site: Site) -> None:
    site.process.kill()
    site.process.wait()
    site.process.stdout.close()
    until(lambda: not is_locked(site.home))
    remove(site.home)


def of_this_run(home: Home) -> list[str]:
    """Names of living processes that this home's supervisor started, however far down."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            environment = (folder / "environ").read_bytes() if folder.name.isdigit() else b""
            if f"{MARK}=".encode() in environment and f"STROP_HOME={home.root}".encode() in environment:
                found.append((folder / "comm").read_text().strip())
        except OSError:
            continue
    return found + [f"postgres {pid}" for pid in cluster_processes(f"strop-{home.digest}")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    closed = tmp_path_factory.mktemp("closed")
    closed.chmod(0o700)
    started = start(closed / "home", claim_port("127.0.0.1", 0))
    yield started
    assert closed.stat().st_mode & 0o777 == 0o700
    end(started)


def test_the_ready_line_tells_address_sign_in_link_and_first_key(site: Site):
    word, url, sign_in, key = site.ready_line.split()
    assert (word, url) == ("READY", site.url)
    assert sign_in.startswith(f"sign_in={site.url}/sign-in/")
    assert key.startswith("key=strop_")


def test_probes_and_metrics_answer(site: Site):
    assert json.loads(get(f"{site.url}/healthz"))["status"] == "ok"
    assert json.loads(get(f"{site.url}/readyz")) == {"status": "ok", "database": True, "broker": True}
    names = get(f"{site.url}/metrics")
    assert "strop_jobs" in names and "strop_web_open_requests 0.0" in names


def test_status_tells_what_runs(site: Site):
    told = subprocess.run([*STROP, "--home", site.home.root, "status", "--json"], capture_output=True, text=True)
    status = json.loads(told.stdout)
    assert (status["running"], status["ready"], status["url"]) == (True, True, site.url)
    assert status["pid"] == site.process.pid
    assert {row["name"] for row in status["processes"]} == {"postgres", "valkey", "worker", "beat", "web"}


def test_a_second_up_on_the_home_says_who_has_it(site: Site):
    second = subprocess.run([*STROP, "--home", site.home.root, "up"], capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert f"already running on {site.home.root}, pid {site.process.pid}, at {site.url}" in second.stderr


def test_another_home_on_the_taken_port_is_told_a_free_one(site: Site, tmp_path: Path):
    other = [*STROP, "--home", tmp_path / "other", "up", "--port", str(site.port)]
    refused = subprocess.run(other, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert f"port {site.port} on 127.0.0.1 is taken; " in refused.stderr
    assert "strop up --port " in refused.stderr


@pytest.mark.parametrize("name", ["web", "worker", "beat", "valkey"])
def test_a_killed_process_is_back_and_the_site_is_ready_again(site: Site, name: str):
    before = site.pid(name)
    os.kill(before, signal.SIGKILL)
    until(lambda: site.pid(name) not in (None, before))
    until(lambda: site.ready() == "ok")


def test_without_the_broker_the_site_is_degraded_and_still_ready(site: Site):
    os.kill(site.pid("valkey"), signal.SIGSTOP)
    try:
        assert site.ready() == "degraded"
    finally:
        os.kill(site.pid("valkey"), signal.SIGCONT)
    until(lambda: site.ready() == "ok")


def test_a_killed_postgres_comes_back_with_its_rows_without_a_restart_of_web(site: Site):
    web, before = site.pid("web"), site.pid("postgres")
    for pid in cluster_processes(Postgres.of(site.home).cluster_name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: site.pid("postgres") not in (None, before))
    until(lambda: site.ready() == "ok")
    assert site.pid("web") == web
    with Postgres.of(site.home).connect() as connection:
        assert connection.execute("SELECT count(*) FROM auth_user").fetchone() == (1,)


def test_the_worker_still_does_jobs_after_all_those_kills(site: Site):
    """The sweep fires hourly schedules once; a fresh one is asked for by making its slot forgotten."""
    with Postgres.of(site.home).connect() as connection:
        until(lambda: connection.execute("DELETE FROM jobs_scheduleslot").rowcount, timeout_s=60)
        until(lambda: connection.execute("SELECT count(*) FROM jobs_scheduleslot").fetchone() != (0,), timeout_s=60)


def test_ctrl_c_ends_everything_and_the_next_start_keeps_what_there_was(tmp_path: Path):
    site = start(tmp_path / "home", claim_port("127.0.0.1", 0))
    try:
        assert " key=" in site.ready_line
        site.process.send_signal(signal.SIGINT)
        assert site.process.wait(60) == 0
        assert of_this_run(site.home) == []
        site.process.stdout.close()

        site = start(tmp_path / "home", site.port)
        assert " key=" not in site.ready_line
        site.process.kill()
        site.process.wait()
        until(lambda: of_this_run(site.home) == [], timeout_s=10)
    finally:
        end(site)


def test_production_with_unsafe_settings_does_not_start_and_says_what_to_set(tmp_path: Path):
    with pytest.raises(AssertionError) as refused:
        start(tmp_path / "home", claim_port("127.0.0.1", 0), "--production")
    assert "strop.E006" in str(refused.value) and "STROP_PUBLIC_URL=https://" in str(refused.value)
    assert "strop.E007" in str(refused.value)
    assert of_this_run(Home(tmp_path / "home")) == []
    remove(Home(tmp_path / "home"))


def test_production_with_safe_settings_is_ready_and_answers_people_only_over_https(tmp_path: Path):
    site = start(
        tmp_path / "home",
        claim_port("127.0.0.1", 0),
        "--production",
        STROP_PUBLIC_URL="https://strop.example.org",
        STROP_ALLOWED_HOSTS="strop.example.org",
        STROP_CSRF_TRUSTED_ORIGINS="https://strop.example.org",
    )
    try:
        assert site.ready() == "ok"
        assert " sign_in=https://strop.example.org/sign-in/" in site.ready_line
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=10)
        connection.request("GET", "/sign-in", headers={"host": "strop.example.org"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["location"]) == (301, "https://strop.example.org/sign-in")
        connection.close()
    finally:
        end(site)
