"""Every program that the first-steps page offers is run as it stands, against a running Strop: its signal arrives."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from console import snippets
from tests.conftest import CHECKOUT, unavailable
from tests.live import LiveStrop, live, wait_until

SETUP = """
import json, sys
from pathlib import Path
sys.path.insert(0, "{checkout}")
from registry.services import all_projects, create_key
from registry.tenancy import tenant
from rl_online.services.plans import start_policy
from tests.rl_online.serving import tiny
project = all_projects()[0]
start_policy(project.id, name="editor", folder=tiny.write_reciter(Path("{root}") / "m", [b"Hello."]))
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
        key = json.loads(strop.run_python(SETUP.format(checkout=CHECKOUT, root=root)).splitlines()[-1])
        headers = {"authorization": f"Bearer {key}"}
        body = {"model": "editor", "prompt": "x", "max_tokens": 1}
        wait_until(
            lambda: httpx.post(f"{strop.url}/v1/completions", json=body, headers=headers).status_code == 200,
            "the engine holds the policy",
        )
        yield strop, key


def command(name: str, file: Path) -> list[str]:
    """What runs the program. Skips where that is not installed."""
    if name.endswith("curl"):
        if not (shutil.which("bash") and shutil.which("curl")):
            unavailable("bash and curl are needed")
        return ["bash", str(file)]
    if name.endswith("python"):
        return [sys.executable, str(file)]
    if not shutil.which("node"):
        pytest.skip("Node is not installed")
    return ["node", str(file)]


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
    if "Cannot find package 'openai'" in run.stderr:
        pytest.skip("npm's openai is not installed")
    assert run.returncode == 0, run.stderr
    assert '"accepted"' in run.stdout, run.stdout
    wait_until(lambda: accepted(strop) == before + 1, "the turn is labelled accept", 30)


def accepted(strop: LiveStrop) -> int:
    return strop.rows("SELECT count(*) FROM feedback_turn WHERE outcome = 'accept'")[0][0]


def test_every_program_is_tried():
    offered = snippets.through_gateway("editor", None) + snippets.from_elsewhere(None)
    assert {one.name for one in offered} == {*GATEWAY, *ELSEWHERE}
