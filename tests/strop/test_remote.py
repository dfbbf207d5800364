"""Strop for people on other machines: who is let in, whose word about TLS is taken, and which forms are believed."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

from strop.local.ports import is_loopback, own_url
from strop.serve import configuration

STROP = [sys.executable, "-m", "strop.cli"]


def up(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STROP, "--home", str(home), "up", "--port", "0", *options], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.7.7", "strop.example.org"])
def test_an_address_that_others_reach_is_refused_without_production(tmp_path: Path, host: str):
    refused = up(tmp_path / "home", "--host", host)
    assert refused.returncode == 2
    assert f"--host {host} can be reached by others" in refused.stderr
    assert "--production" in refused.stderr and "--plain-http" in refused.stderr
    assert not (tmp_path / "home").exists(), "nothing was begun"


def test_production_on_every_address_still_stops_on_unsafe_settings(tmp_path: Path):
    from strop.home import Home
    from strop.local.remove import remove

    refused = up(tmp_path / "home", "--host", "0.0.0.0", "--production")
    try:
        assert refused.returncode == 1 and "strop.E006" in refused.stderr
    finally:
        remove(Home(tmp_path / "home"))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("10.1.2.3", "http://10.1.2.3:80"),
        ("::1", "http://[::1]:80"),
    ],
)
def test_our_own_processes_reach_a_wildcard_by_loopback(host: str, url: str):
    assert own_url(host, 80) == url


@pytest.mark.parametrize(
    ("host", "is_ours"), [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("10.0.0.1", False)]
)
def test_loopback_is_known(host: str, is_ours: bool):
    assert is_loopback(host) is is_ours


async def answer_over(application, peer: str, **headers: str) -> int:
    """The status of GET /sign-in as the web process answers it to a TCP peer, through uvicorn's own layers."""
    named = [(b"host", b"strop.example.org"), *((k.encode(), v.encode()) for k, v in headers.items())]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/sign-in",
        "raw_path": b"/sign-in",
        "query_string": b"",
        "headers": named,
        "client": (peer, 4711),
        "server": ("127.0.0.1", 8000),
        "asgi": {"version": "3.0"},
    }
    sent: list[dict] = []
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict:
        for message in asked:
            return message
        await asyncio.sleep(60)  # the client stays
        raise AssertionError("the answer took a minute")

    async def send(message: dict) -> None:
        sent.append(message)

    await asyncio.wait_for(application(scope, receive, send), 30)
    return sent[0]["status"]


PEERS = [
    ("10.1.2.3", {"x-forwarded-proto": "https"}, 200),
    ("127.0.0.1", {"x-forwarded-proto": "https"}, 200),
    ("10.1.2.3", {"x-forwarded-proto": "http"}, 301),
    ("203.0.113.9", {"x-forwarded-proto": "https"}, 301),  # not our proxy: its word is not taken
    ("203.0.113.9", {"x-forwarded-proto": "https", "x-forwarded-for": "127.0.0.1"}, 301),
    ("127.0.0.1", {}, 301),
]


@pytest.mark.django_db(transaction=True)
def test_only_a_named_proxy_is_believed_that_the_client_came_by_https(settings, fresh_application):
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["strop.example.org"]
    settings.TRUSTED_PROXIES = ["10.0.0.0/8", "127.0.0.1"]
    config = configuration()
    config.load()

    async def ask() -> list[int]:
        return [await answer_over(config.loaded_app, peer, **headers) for peer, headers, _ in PEERS]

    assert asyncio.run(ask()) == [status for *_, status in PEERS]


def test_a_form_without_its_token_gets_our_own_page_and_is_told_what_to_do(client, owner, project):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner)
    answer = strict.post("/p/editor/updates/learning", {"policy": "editor", "to": "pause"})
    page = answer.content.decode()
    assert answer.status_code == 403
    assert "The form had expired. Reload the page it was on and send it again." in page
    assert answer["x-request-id"] in page and "csrfmiddlewaretoken" not in page


@pytest.mark.parametrize(
    ("origin", "is_taken"), [("https://strop.example.org", True), ("https://evil.example.org", False)]
)
def test_forms_are_taken_from_the_origins_that_are_named(owner, project, settings, origin: str, is_taken: bool):
    settings.ALLOWED_HOSTS = ["strop.example.org"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://strop.example.org"]
    strict = Client(enforce_csrf_checks=True, SERVER_NAME="strop.example.org")
    strict.force_login(owner)
    page = strict.get("/p/editor/updates", secure=True)
    token = page.cookies["csrftoken"].value if "csrftoken" in page.cookies else strict.cookies["csrftoken"].value
    sent = {"policy": "none", "to": "pause", "csrfmiddlewaretoken": token}
    headers = {"origin": origin, "referer": f"{origin}/p/editor/updates"}
    answer = strict.post("/p/editor/updates/learning", sent, secure=True, headers=headers)
    assert (answer.status_code == 403) is not is_taken
