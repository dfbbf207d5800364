"""One signed POST to a receiver's own address, through the checked outbound door.

    strop-signature: t=1764500000,v1=<hex HMAC-SHA256 of "1764500000." + body, with the channel's secret>

A receiver recomputes it over the raw body and refuses a `t` of more than five minutes ago. Redirects are not followed.
Not here: when to send, and again (registry.deliveries).
"""

import asyncio
import hashlib
import hmac
import time
from dataclasses import dataclass

import httpx
from django.conf import settings

from registry import outbound
from registry.models import NotificationChannel

TIMEOUT_S = 15.0
EXCERPT_BYTES = 1_000  # of an answer, kept for the log


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """What came of one try."""

    status: int | None  # of the HTTP answer; None when there was none
    duration_ms: float
    excerpt: str  # beginning of the answer, or what went wrong
    is_final: bool = False  # trying again cannot help

    @property
    def has_arrived(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def secret_of(channel: NotificationChannel) -> str:
    """The channel's signing secret: derived from the home's, so that the database holds none."""
    key = settings.HOME.secret("webhooks").encode()
    return "whsec_" + hmac.new(key, f"{channel.id}:{channel.secret_version}".encode(), hashlib.sha256).hexdigest()


def signature(secret: str, body: bytes, *, at: int) -> str:
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def post(url: str, body: bytes, *, secret: str, delivery: str) -> Attempt:
    """Never raises for what the other side does: every failure is an Attempt that says so."""
    began = time.monotonic()
    headers = {
        "content-type": "application/json",
        "user-agent": f"strop/{settings.CODE_VERSION}",
        "strop-delivery": delivery,
        "strop-signature": signature(secret, body, at=int(time.time())),
    }
    try:
        status, text = asyncio.run(_post(url, body, headers))
    except outbound.Refused as error:
        return Attempt(status=None, duration_ms=_ms(began), excerpt=error.message, is_final=True)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return Attempt(status=None, duration_ms=_ms(began), excerpt=f"{type(error).__name__}: {error}"[:EXCERPT_BYTES])
    if 300 <= status < 400:
        text = "answered with a redirect; give the address it leads to"
    return Attempt(status=status, duration_ms=_ms(began), excerpt=text, is_final=status == 410)


async def _post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    async with (
        asyncio.timeout(TIMEOUT_S),
        outbound.client(timeout_s=TIMEOUT_S) as http,
        http.stream("POST", url, content=body, headers=headers) as response,
    ):
        head = b""
        async for part in response.aiter_raw():
            head += part
            if len(head) >= EXCERPT_BYTES:
                break
    return response.status_code, head[:EXCERPT_BYTES].decode(errors="replace").replace("\0", "\ufffd")


def _ms(began: float) -> float:
    return round(1000 * (time.monotonic() - began), 1)
