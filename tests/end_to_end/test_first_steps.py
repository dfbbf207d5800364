"""Every program that the first-steps page and the guides offer is run as it stands, against a running Strop."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from console import snippets
from tests.browser.conftest import browser  # noqa: F401
from tests.conftest import CHECKOUT, unavailable
from tests.live import LiveStrop, live, wait_until
from tests.rl_online.serving import tiny

SETUP = """
import json
from pathlib import Path
from registry.services import all_projects, create_key
from registry.tenancy import tenant
from rl_online.services.plans import start_policy
project = all_projects()[0]
start_policy(project.id, name="editor", folder=Path("{folder}"))
with tenant(project.id):
    print(json.dumps(create_key("first steps", ["ingest", "infer"], actor="test")[0]))
"""
GATEWAY = ("gateway-curl", "gateway-openai-python", "gateway-javascript", "gateway-openai-node")
ELSEWHERE = ("events-curl", "events-python", "events-javascript")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveStrop, str]]:
    """A running Strop whose policy `editor` an engine holds, and a key."""
    root = tmp_path_factory.mktemp("first-steps")
    with live(root / "home", "--without", "updater") as strop:
        folder = tiny.write_reciter(root / "m", [b"Hello."])
        key = json.loads(strop.run_python(SETUP.format(folder=folder)).splitlines()[-1])
        headers = {"authorization": f"Bearer {key}"}
        body = {"model": "editor", "prompt": "x", "max_tokens": 1}
        wait_until(
            lambda: httpx.post(f"{strop.url}/v1/completions", json=body, headers=headers).status_code == 200,
            "the engine holds the policy",
        )
        yield strop, key


def command(name: str, file: Path) -> list[str]:
    """What runs the program."""
    if name.endswith("curl"):
        if not (shutil.which("bash") and shutil.which("curl")):
            unavailable("bash and curl are needed")
        return ["bash", str(file)]
    if name.endswith("python"):
        return [sys.executable, str(file)]
    return [node(), str(file)]


def node() -> str:
    """The system's, else the one that Playwright brings."""
    from playwright._impl._driver import compute_driver_executable

    return shutil.which("node") or compute_driver_executable()[0]


@pytest.mark.parametrize("has_key", [True, False], ids=["key-filled-in", "key-from-environment"])
@pytest.mark.parametrize("name", [*GATEWAY, *ELSEWHERE])
def test_the_program_runs_as_it_stands_and_its_turn_is_labelled(site, settings, tmp_path, name, has_key):
    strop, key = site
    settings.PUBLIC_URL = strop.url
    shown = key if has_key else None
    offered = {one.name: one for one in snippets.through_gateway("editor", shown) + snippets.from_elsewhere(shown)}
    file = tmp_path / f"program{'.mjs' if name.endswith('node') else '.js' if 'javascript' in name else '.txt'}"
    file.write_text(offered[name].text)
    before = accepted(strop)
    run = subprocess.run(
        command(name, file), capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", **({} if has_key else {snippets.ENVIRONMENT: key})},
    )  # fmt: skip
    if "Cannot find package 'openai'" in run.stderr:  # npm's is not installed: what is left to see is that it parses
        assert subprocess.run([node(), "--check", str(file)], capture_output=True).returncode == 0
        return
    assert run.returncode == 0, run.stderr
    assert '"accepted"' in run.stdout, run.stdout
    wait_until(lambda: accepted(strop) == before + 1, "the turn is labelled accept", 30)


def accepted(strop: LiveStrop) -> int:
    return strop.rows("SELECT count(*) FROM feedback_turn WHERE outcome = 'accept'")[0][0]


def test_every_program_is_tried():
    offered = snippets.through_gateway("editor", None) + snippets.from_elsewhere(None)
    assert {one.name for one in offered} == {*GATEWAY, *ELSEWHERE}


def blocks(document: str, language: str) -> list[str]:
    text = (CHECKOUT / document).read_text()
    return re.findall(rf"\n```{language}\n(.*?)```", text, re.DOTALL)


def run_python(text: str, folder: Path, **environment: str) -> str:
    (folder / "program.py").write_text(text)
    run = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, timeout=60, cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_readmes_program_runs_as_it_stands(site, tmp_path: Path):
    strop, key = site
    [program] = blocks("README.md", "python")
    assert program.count("http://127.0.0.1:8000") == 1
    before = accepted(strop)
    said = run_python(program.replace("http://127.0.0.1:8000", strop.url), tmp_path, STROP_KEY=key)
    assert "Hello." in said and "'outcomes': {'accepted': 1}" in said
    wait_until(lambda: accepted(strop) == before + 1, "the turn is labelled accept", 30)


GUIDE = """
import random, time
from datetime import UTC, datetime
import httpx, openai
KEY = "{key}"
messages, now, text = [{{"role": "user", "content": "Say hello."}}], datetime.now(UTC).isoformat(), "Hi."
{ask}
{send}
print(send([{{"type": "signal", "id": turn + "-accept", "turn": turn, "kind": "accept", "at": now}}])["outcomes"])
turn = "own-" + turn
print(send([{turn}])["outcomes"])
print(send([{turn}])["outcomes"])
"""


def test_the_integration_guides_python_asks_sends_and_sends_again(site, tmp_path: Path):
    strop, key = site
    ask, turn, send = [block.replace("https://strop.example.com", strop.url)
                       for block in blocks("docs/integration.md", "python")]  # fmt: skip
    said = run_python(GUIDE.format(key=key, ask=ask, turn=turn, send=send), tmp_path)
    assert said.split("\n")[:3] == ["{'accepted': 1}", "{'accepted': 1}", "{'duplicate': 1}"]
    kept = strop.rows(
        "SELECT t.turn_id LIKE 'own-%', s.session_id, t.\"user\", t.model FROM feedback_turn t "
        "JOIN feedback_agentsession s ON s.id = t.session_id WHERE s.session_id = 'edit-42' ORDER BY 1"
    )
    assert [row[:3] for row in kept] == [(False, "edit-42", "u-17"), (True, "edit-42", "u-17")]
    assert kept[1][3] == "gpt-5"


def test_the_references_curl_runs_as_it_stands_and_gets_the_answer_that_is_shown(site, tmp_path: Path):
    strop, key = site
    [call] = [block for block in blocks("docs/api.md", "sh") if '"signal-1"' in block]
    [shown] = [json.loads(block) for block in blocks("docs/api.md", "json") if '"signal-1"' in block]
    (tmp_path / "call").write_text(call.replace("http://127.0.0.1:8000", strop.url))
    run = subprocess.run(
        ["bash", tmp_path / "call"], capture_output=True, text=True, timeout=60, env=os.environ | {"STROP_KEY": key}
    )
    assert json.loads(run.stdout) == shown


CONTENT = b"<!doctype html><title>A page of the product</title><p>Hello.</p>"


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, format: str, *arguments: object) -> None:
        return None


@pytest.fixture
def product_page() -> Iterator[str]:
    """The address of a page of the product, which lies on another origin than Strop."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


BROWSER_KEY = """
from registry.services import all_projects, create_key
from registry.tenancy import tenant
with tenant(all_projects()[0].id):
    print(create_key("page", ["ingest"], actor="test", origins=["{origin}"], items_per_minute=10)[0])
"""


def test_the_guides_script_sends_a_signal_from_a_page_of_the_product(site, browser, product_page):  # noqa: F811
    strop, _ = site
    [script] = blocks("docs/integration.md", "javascript")
    key = strop.run_python(BROWSER_KEY.format(origin=product_page)).splitlines()[-1]
    page = browser.new_page()
    try:
        page.goto(product_page)
        text = script.replace("https://strop.example.com", strop.url)
        with page.expect_response("**/v1/events") as answered:
            page.evaluate(f"async ([BROWSER_KEY, turn]) => {{ {text} }}", [key, "shown-in-page"])
        assert answered.value.status == 202
    finally:
        page.close()
    assert strop.rows("SELECT kind FROM feedback_usersignal WHERE signal_id = 'shown-in-page-copy'") == [("copy",)]
