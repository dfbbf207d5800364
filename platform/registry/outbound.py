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
# IPv6 forms that a gateway on the way may turn into the IPv4 address inside: NAT64, 6to4, Teredo, IPv4-compatible.
CARRIERS = tuple(
    ipaddress.IPv6Network(block) for block in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")
)


class Refused(InvalidInput):
    """The address is not one this server may call."""


def check_url(url: str, *, field: str = "url") -> str:
    """The URL itself when it may be called. Raises Refused naming `field`."""
    try:
        parts = urlsplit(url)
        port = _port(url)
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        raise Refused("this is no address", field=field) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused("give an http or https address", field=field)
    if parts.username or parts.password:
        raise Refused("put no user name or password into the address", field=field)
    if not is_allowed(parts.hostname, port):
        addresses_of(parts.hostname, port, field=field)
    return url


def site_of(url: str) -> str:
    """Scheme, host and port of an address that was checked."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def is_allowed(host: str, port: int) -> bool:
    """Whether the operator named this host as one of ours."""
    allowed: set[tuple[str | None, int]] = {(settings.HOST, settings.PORT)}
    allowed |= {(urlsplit(url).hostname, _port(url)) for url in (settings.PUBLIC_URL, settings.WEB_URL)}
    for entry in settings.OUTBOUND_ALLOW:
        name, _, number = entry.rpartition(":") if ":" in entry else (entry, "", "")
        allowed.add((name, int(number) if number else port))
    return (host, port) in allowed


def addresses_of(host: str, port: int, *, field: str = "url") -> list[str]:
    """Addresses of a public host. Raises Refused when it does not resolve or any address is not public."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Refused("this host name does not resolve", field=field) from None
    addresses = [str(entry[4][0]) for entry in found]
    for text in addresses:
        if not _is_public(text.partition("%")[0]):
            raise Refused("this address is not public; name it in STROP_OUTBOUND_ALLOW if it is yours", field=field)
    return addresses


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if any(address in block for block in CARRIERS):
            return False
        address = address.ipv4_mapped or address
    return address.is_global and not address.is_multicast


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
