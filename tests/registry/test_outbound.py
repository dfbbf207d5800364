"""The one door out: what it refuses at saving and at connecting."""

import asyncio
import socket

import httpx
import pytest

from registry import outbound


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://0/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.1.2.3/",
        "http://192.168.0.1/",
        "http://user:pass@example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http:///x",
    ],
)
def test_private_and_odd_addresses_are_refused_with_the_field(url):
    with pytest.raises(outbound.Refused) as refusal:
        outbound.check_url(url, field="judge_url")
    assert refusal.value.field == "judge_url"


@pytest.mark.parametrize(
    "host",
    [
        "64:ff9b::a00:1",  # NAT64 of 10.0.0.1
        "64:ff9b::a9fe:a9fe",  # NAT64 of 169.254.169.254
        "64:ff9b:1::a00:1",  # NAT64 with a local prefix
        "2002:a00:1::1",  # 6to4 of 10.0.0.1
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe",  # Teredo, its client being 10.0.0.1
        "::10.0.0.1",  # IPv4-compatible
        "::ffff:10.0.0.1",
    ],
)
def test_an_ipv6_address_that_carries_an_ipv4_one_is_refused(host):
    with pytest.raises(outbound.Refused, match="not public"):
        outbound.addresses_of(host, 443)


def test_public_ipv6_addresses_pass():
    for host in ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", "2001:4860:4860::8888", "::ffff:93.184.216.34"):
        assert outbound.addresses_of(host, 443)


@pytest.mark.parametrize(
    "url",
    [
        "http://[x",
        "http://[x]/",
        "http://example.com:99999",
        "http://example.com:x/",
        "http://a..b",
        "http://a\0b/",
        "http://" + "a" * 70 + ".example/",
        "http://\u2100.example/",
    ],
)
def test_what_is_no_address_at_all_is_refused_with_the_field(url):
    with pytest.raises(outbound.Refused) as refusal:
        outbound.check_url(url, field="target")
    assert refusal.value.field == "target"


def test_a_public_address_passes():
    assert outbound.check_url("https://93.184.216.34/v1") == "https://93.184.216.34/v1"


def test_an_address_the_operator_named_passes(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1:9999"]
    assert outbound.check_url("http://127.0.0.1:9999/v1")
    with pytest.raises(outbound.Refused):
        outbound.check_url("http://127.0.0.1:9998/v1")


def test_our_own_gateway_may_be_private(settings):
    settings.PUBLIC_URL, settings.WEB_URL = "http://127.0.0.1:8123", "http://127.0.0.1:8124"
    assert outbound.check_url("http://127.0.0.1:8123/v1")
    assert outbound.check_url("http://127.0.0.1:8124/v1"), "past the proxy"


def test_a_name_that_turns_private_after_saving_is_refused_when_connecting(monkeypatch):
    answers = iter(["93.184.216.34", "127.0.0.1"])

    def resolve(host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    outbound.check_url("http://rebinding.example/")

    async def call() -> None:
        async with outbound.client() as client:
            await client.get("http://rebinding.example/")

    with pytest.raises(outbound.Refused):
        asyncio.run(call())


def test_a_redirect_is_not_followed(settings):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    settings.OUTBOUND_ALLOW = [f"127.0.0.1:{port}"]

    async def serve_once(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def call() -> httpx.Response:
        async with await asyncio.start_server(serve_once, sock=server), outbound.client() as client:
            return await client.get(f"http://127.0.0.1:{port}/")

    assert asyncio.run(call()).status_code == 302
