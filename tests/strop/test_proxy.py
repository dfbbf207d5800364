"""A Strop in production behind nginx as docs/operations.md sets it up, word for word: what a person and a program get.

Only the port, the certificate and Strop's own port differ from the sample.
"""

import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from strop.local.ports import claim_port
from tests.conftest import CHECKOUT, unavailable
from tests.live import LiveStrop, live, wait_until
from tests.rl_online.serving import tiny

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

NAME = "strop.example.org"
SITE = f"https://{NAME}"
NUM_PIECES = 400
OPERATIONS = (CHECKOUT / "docs" / "operations.md").read_text()
FRAME = """
{user}
daemon off; pid {root}/nginx.pid; error_log {root}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
  {server}
}}
"""
SETUP = """
from pathlib import Path
from registry.services import all_projects
from rl_online.services.plans import start_policy
start_policy(all_projects()[0].id, name="editor", folder=Path("{folder}"))
"""


def nginx_sample(root: Path, *, port: int, strop: str) -> str:
    """The documented server block with our port, certificate and Strop's address."""
    found = re.search(r"\nnginx:\n```\n(.*?)```", OPERATIONS, re.DOTALL)
    assert found is not None
    text = found[1]
    for ours, theirs in (
        (f"listen 127.0.0.1:{port} ssl;", r"listen 443 ssl;"),
        (f"{root}/cert.pem", r"/etc/letsencrypt/live/[^;]*fullchain\.pem"),
        (f"{root}/key.pem", r"/etc/letsencrypt/live/[^;]*privkey\.pem"),
        (strop, r"http://127\.0\.0\.1:8000"),
    ):
        text, number = re.subn(theirs, ours, text)
        assert number == 1, f"the sample has {number} of {theirs}"
    return text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStrop]:
    """A Strop as the documented command starts it, with a policy that recites."""
    root = tmp_path_factory.mktemp("behind-proxy")
    documented = dict(re.findall(r"(STROP_[A-Z_]+)=(\S+?)(?: \\)?(?=\s)", OPERATIONS.split("Put a TLS proxy")[1][:900]))
    assert documented.keys() == {"STROP_PUBLIC_URL", "STROP_ALLOWED_HOSTS", "STROP_CSRF_TRUSTED_ORIGINS"}
    with live(root / "home", "--production", "--without", "updater", **documented) as strop:
        strop.environment.clear()  # commands are called from another shell
        pieces = [f"word-{n:03} ".encode() for n in range(NUM_PIECES)]
        strop.run_python(SETUP.format(folder=tiny.write_reciter(root / "m", pieces)))
        yield strop


@pytest.fixture(scope="module")
def proxy(site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """nginx with the documented sample; its port."""
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(binary).exists():
        unavailable("nginx is not installed; apt-get install nginx-light")
    root, port = tmp_path_factory.mktemp("nginx"), claim_port("127.0.0.1", 0)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}",
         "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", root / "key.pem", "-out", root / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    server = nginx_sample(root, port=port, strop=site.url)
    user = "user root;" if root.owner() == "root" else ""
    (root / "nginx.conf").write_text(FRAME.format(root=root, server=server, user=user))
    process = subprocess.Popen([binary, "-p", root, "-c", root / "nginx.conf"], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: answers(port, process), "nginx listens", 20)
        trust.load_verify_locations(root / "cert.pem")
        yield port
    finally:
        process.terminate()
        process.communicate()


trust = ssl.create_default_context()


def answers(port: int, process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, process.stderr.read()  # type: ignore[union-attr]
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def browser(proxy: int) -> Iterator[httpx.Client]:
    """Comes by the public name and checks the certificate, as a browser does."""

    def by_name(request: httpx.Request) -> None:
        request.headers["host"] = NAME
        request.extensions |= {"sni_hostname": NAME}

    with httpx.Client(
        base_url=f"https://127.0.0.1:{proxy}", verify=trust, event_hooks={"request": [by_name]}, timeout=30
    ) as client:
        yield client


@pytest.fixture(scope="module")
def key(site) -> str:
    return site.strop("keys", "create", "--scopes", "ingest,infer")["key"]


def sign_in(site, browser: httpx.Client) -> httpx.Response:
    link = site.strop("members", "link", "owner")["link"]
    assert link.startswith(f"{SITE}/sign-in/"), "commands know what runs"
    return browser.get(link.removeprefix(SITE))


def test_a_person_signs_in_by_the_link_and_the_cookie_travels_encrypted_only(site, browser: httpx.Client):
    answer = sign_in(site, browser)
    cookie = next(value for value in answer.headers.get_list("set-cookie") if value.startswith("sessionid="))
    assert {"Secure", "HttpOnly", "SameSite=Lax"} <= set(cookie.split("; "))
    assert answer.headers["strict-transport-security"] == "max-age=3600"
    page = browser.get("/p/default/turns")
    assert (page.status_code, page.headers["x-frame-options"]) == (200, "DENY")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


def test_the_sign_in_form_is_believed_and_one_from_elsewhere_is_not(browser: httpx.Client):
    form = browser.get("/sign-in").text
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
    sent = {"csrfmiddlewaretoken": token[1], "username": "owner", "password": "no such password"}
    tried = browser.post("/sign-in", data=sent, headers={"origin": SITE, "referer": f"{SITE}/sign-in"})
    assert tried.status_code == 200 and "User name and password do not match." in tried.text
    assert browser.post("/sign-in", data=sent, headers={"origin": "https://evil.example.org"}).status_code == 403


def test_a_static_file_comes_whole_and_may_be_kept(browser: httpx.Client):
    path = re.search(r'href="(/static/[^"]+\.css)"', browser.get("/sign-in").text)[1]
    answer = browser.get(path)
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/css")
    assert len(answer.content) > 1000 and "max-age" in answer.headers["cache-control"]


def test_a_live_page_is_sent_as_it_happens(site, browser: httpx.Client):
    """The first parts are here while the stream, which lasts a minute, is open."""
    sign_in(site, browser)
    begun = time.monotonic()
    with browser.stream("GET", "/p/default/start/live") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert next(line for line in answer.iter_lines() if line.startswith("event: parts"))
        assert time.monotonic() - begun < 10


def test_a_completion_is_streamed_token_by_token(browser: httpx.Client, key: str):
    asked = {"model": "editor", "prompt": "x", "max_tokens": NUM_PIECES + 1, "stream": True}
    headers = {"authorization": f"Bearer {key}"}
    wait_until(
        lambda: browser.post("/v1/completions", json=asked | {"max_tokens": 1, "stream": False}, headers=headers)
        .is_success,
        "the engine holds the policy",
    )  # fmt: skip
    begun, at, text = time.monotonic(), [], ""
    with browser.stream("POST", "/v1/completions", json=asked, headers=headers) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                at.append(time.monotonic() - begun)
                text += json.loads(line.removeprefix("data: "))["choices"][0]["text"] if "text" in line else ""
        assert line == "" or line == "data: [DONE]"
    assert text.startswith("word-000 word-001 ") and text.rstrip().endswith(f"word-{NUM_PIECES - 1:03}")
    assert len(at) > 50 and at[0] < at[-1] / 2, "the first token came long before the last"


def test_two_megabytes_of_items_pass(browser: httpx.Client, key: str):
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    items = [
        {"type": "turn", "id": f"big-{n}", "session": "big", "index": n, "at": at, "model": "m", "prompt": "x",
         "completion": "y" * 50_000}
        for n in range(40)
    ]  # fmt: skip
    sent = browser.post("/v1/events", json={"items": items}, headers={"authorization": f"Bearer {key}"})
    assert (sent.status_code, sent.json()["outcomes"]) == (202, {"accepted": 40})


def test_what_a_client_says_of_itself_is_written_over(browser: httpx.Client):
    """The proxy's word counts: a client that claims plain HTTP, or another name, is not believed."""
    said = {"x-forwarded-proto": "http", "x-forwarded-host": "evil.example.org", "forwarded": "proto=http;host=evil"}
    answer = browser.get("/sign-in", headers=said)
    assert answer.status_code == 200 and "evil" not in answer.text


def test_past_the_proxy_people_are_sent_to_https_and_probes_are_not(site):
    page = httpx.get(f"{site.url}/sign-in", headers={"host": NAME})
    assert (page.status_code, page.headers["location"]) == (301, f"{SITE}/sign-in")
    assert httpx.get(f"{site.url}/healthz").status_code == 200
    assert httpx.get(f"{site.url}/metrics").status_code == 404
    assert httpx.get(f"{site.url}/sign-in", headers={"host": "evil.example.org"}).status_code == 400


def test_doctor_judges_what_runs_not_the_shell_it_is_called_from(site):
    found = {row["check"]: row for row in site.strop("doctor")["findings"]}
    assert (found["production"]["level"], found["production"]["found"]) == ("ok", f"{SITE}, all settings safe")
    assert site.strop("status")["public_url"] == SITE
