"""A real Chromium against the product's own web process, on the test's database."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client

from registry.tenancy import tenant
from tests.conftest import CHECKOUT, unavailable
from tests.console import factories

SESSION_COOKIE_NAME = "sessionid"
HEIGHT = 800
SHOTS = CHECKOUT / "screenshots"  # for a person to look at; STROP_SCREENSHOTS=0 takes none, a fifth of the work
CHROMIUM_ARGS = [
    *("--no-sandbox", "--disable-dev-shm-usage"),
    # One renderer that paints without a GPU's emulation, and no extensions: a fifth less work for the same pages.
    *("--disable-gpu", "--disable-gpu-rasterization", "--renderer-process-limit=1", "--disable-site-isolation-trials"),
    "--disable-extensions",
]


@pytest.fixture(scope="module")  # while Playwright runs, no other test could start an event loop
def browser() -> Iterator:
    """Chromium of the system; Playwright must not bring its own."""
    path = os.environ.get("STROP_CHROMIUM") or shutil.which("chromium")
    if not path or not Path(path).exists():
        unavailable("Chromium is not installed; apt-get install chromium fonts-dejavu")
    sync_api = pytest.importorskip("playwright.sync_api")
    with pytest.MonkeyPatch.context() as patch, sync_api.sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # its loop runs in the test's own thread
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def web(django_db_setup, home) -> Iterator[str]:
    """The product's own web process, `python -m strop.serve`, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home.logs.mkdir(parents=True, exist_ok=True)
    with (home.logs / "web.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "strop.serve"], cwd=CHECKOUT, env=os.environ | {"STROP_PORT": str(port)}, stderr=log
        )
        address = f"http://127.0.0.1:{port}"
        wait_for(address + "/healthz", process)
        yield address
        process.terminate()
        process.wait(40)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the web process ended at its start"
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url, timeout=5)
            return
        time.sleep(0.2)
    pytest.fail(f"{url} did not answer within two minutes")


@pytest.fixture
def site(transactional_db, web) -> str:
    """The address of a running web process that sees what the test committed."""
    return web


@pytest.fixture(autouse=True)
def quick_passwords(settings):
    """Passwords of test users need not resist anyone."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def loop(project):
    with tenant(project.id):
        return factories.make_loop(num_turns=60)


class Visit:
    """A signed-in page that remembers everything the browser complained about."""

    def __init__(self, page, site: str) -> None:
        self.page = page
        self.site = site
        self.complaints: list[str] = []
        page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: str) -> None:
        self.page.goto(self.site + path, wait_until="load")
        self.page.wait_for_function("!document.querySelector('[data-figure]') || window.strop")

    def widen(self, width: int) -> None:
        """Another width of the screen, for the pages that are opened from now on."""
        self.page.goto("about:blank")  # or the charts of the page before would be drawn anew
        self.page.set_viewport_size({"width": width, "height": HEIGHT})

    def shoot(self, name: str, *, whole: bool = True) -> None:
        """A picture of the whole page, or of what is on the screen."""
        if os.environ.get("STROP_SCREENSHOTS") != "0":
            SHOTS.mkdir(exist_ok=True)
            self.page.screenshot(path=SHOTS / f"{name}.png", full_page=whole)


def wait_until_quiet(seconds: float = 5.0) -> None:
    """Until the web process has answered what closed pages still asked: emptying the tables would deadlock with it."""
    deadline = time.monotonic() + seconds
    others = "usename = current_user AND pid <> pg_backend_pid() AND state <> 'idle'"
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {others}")
            if cursor.fetchone() == (0,):
                return
        time.sleep(0.05)


def session_of(username: str) -> str:
    client = Client()
    client.force_login(get_user_model().objects.get(username=username))
    return client.cookies[SESSION_COOKIE_NAME].value


@pytest.fixture(scope="module")
def spare(browser) -> list:
    """Contexts that earlier tests of the module gave back; the scripts and styles they hold save a second a test."""
    return []


def forget(page, site: str) -> None:
    """The page's context knows nobody any more, and nothing that pages kept."""
    page.context.clear_cookies()
    session = page.context.new_cdp_session(page)
    session.send("Storage.clearDataForOrigin", {"origin": site, "storageTypes": "local_storage"})
    session.detach()


@pytest.fixture
def visit(browser, spare, site):
    """visit(user, theme=, width=) -> a Visit, signed in, in a context of its own."""
    contexts = []

    def make(username: str, *, theme: str = "light", width: int = 1280) -> Visit:
        screen = {"width": 1280, "height": HEIGHT}
        context = spare.pop() if spare else browser.new_context(viewport=screen, reduced_motion="reduce")
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()
        forget(page, site)
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size(screen | {"width": width})
        context.add_cookies([{"name": SESSION_COOKIE_NAME, "value": session_of(username), "url": site}])
        return Visit(page, site)

    yield make
    for context in contexts:
        for page in context.pages:
            page.close()
    spare.extend(contexts)
    wait_until_quiet()
