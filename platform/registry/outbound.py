"""The one door for outgoing HTTP: judges, webhooks, hubs and our own gateway.

An address is checked when it is saved (`check_url`) and again when it is connected to: the name is resolved here, every
address it has must be public, and the connection goes to the very address that was checked, so that a second DNS answer
cannot redirect it. Redirects are not followed. Our own gateway and `STROP_OUTBOUND_ALLOW` hosts may be private.
"""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

import httpx
from django.conf import settings

from registry.errors import InvalidInput

DEFAULT_TIMEOUT_S = 60.0


class Refused(InvalidInput):
    """The address is not one this server may call."""


def check_url(url: str, *, field: str = "url") -> str:
    """The URL itself when it may be called. Raises Refused naming `field`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused("give an http or https address", field=field)
    if parts.username or parts.password:
        raise Refused("put no user name or password into the address", field=field)
    if not is_allowed(parts.hostname, _port(url)):
        addresses_of(parts.hostname, _port(url), field=field)
    return url


def is_allowed(host: str, port: int) -> bool:
    """Whether the operator named this host as one of ours."""
    ours = urlsplit(settings.PUBLIC_URL)
    allowed = {(ours.hostname, _port(settings.PUBLIC_URL)), (settings.HOST, settings.PORT)}
    for entry in settings.OUTBOUND_ALLOW:
        name, _, number = entry.rpartition(":") if ":" in entry else (entry, "", "")
        allowed.add((name, int(number) if number else port))
    return (host, port) in allowed


def addresses_of(host: str, port: int, *, field: str = "url") -> list[str]:
    """Addresses of a public host. Raises Refused when it does not resolve or any address is not public."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise Refused("this host name does not resolve", field=field) from None
    addresses = [str(entry[4][0]) for entry in found]
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if not (mapped or address).is_global or (mapped or address).is_multicast:
            raise Refused("this address is not public; name it in STROP_OUTBOUND_ALLOW if it is yours", field=field)
    return addresses


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


class _CheckedTransport(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        if not is_allowed(host, port):
            address = (await asyncio.to_thread(addresses_of, host, port))[0]
            request.extensions = request.extensions | {"sni_hostname": host}
            request.url = request.url.copy_with(host=address)
        return await super().handle_async_request(request)


def client(*, timeout_s: float = DEFAULT_TIMEOUT_S, base_url: str = "", **headers: str) -> httpx.AsyncClient:
    """An HTTP client that can only reach what this door allows. The Host header stays the name that was asked for."""
    return httpx.AsyncClient(
        transport=_CheckedTransport(limits=httpx.Limits(max_connections=64, max_keepalive_connections=16)),
        base_url=base_url,
        headers=headers,
        timeout=timeout_s,
        follow_redirects=False,
        trust_env=False,
    )
