"""What the product's own processes show instead of a key: a token for one purpose, good for some minutes.

    internal.<claim: base64url of JSON>.<HMAC-SHA256 over the claim, with the home's secret>

Made by whoever may read the home's secret, for each request anew; nothing keeps one. Pure; `registry.auth` says what a
purpose opens.
"""

import base64
import binascii
import hashlib
import hmac
import json
import time
from dataclasses import asdict, dataclass
from enum import StrEnum

PREFIX = "internal."
LIFETIME_S = 300
CLOCK_SKEW_S = 30  # how far ahead a host's clock may be


class BadToken(ValueError):
    """Not a token of this home, or not one any more; the message says which."""


class Purpose(StrEnum):
    WEIGHTS = "weights"  # an engine fetches what it should hold, and reports what it holds
    ANSWERS = "answers"  # ask the gateway as one project, the turns marked with one source
    EVENTS = "events"  # send turns and signals as one project


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    purpose: Purpose
    expires_at: float  # seconds since 1970
    project: str | None = None  # UUID; None only for weights, which are fetched for every project
    source: str | None = None  # of the turns an ANSWERS token may make


def mint(
    secret: str,
    purpose: Purpose,
    *,
    project: object = None,
    source: str | None = None,
    lifetime_s: float = LIFETIME_S,
) -> str:
    """What follows `Bearer `."""
    assert (project is None) == (purpose is Purpose.WEIGHTS), "all but weights are asked for as one project"
    claim = Claim(
        purpose=purpose,
        expires_at=round(time.time() + lifetime_s, 3),
        project=None if project is None else str(project),
        source=source,
    )
    text = base64.urlsafe_b64encode(json.dumps(asdict(claim)).encode()).decode().rstrip("=")
    return f"{PREFIX}{text}.{_sign(secret, text)}"


def read(secret: str, token: str) -> Claim:
    """Raises BadToken for another secret, a changed claim, one whose time is over, or one good for too long."""
    text, _, signature = token.removeprefix(PREFIX).partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(secret, text).encode()):
        raise BadToken("the internal token is not one of this home")
    try:
        fields = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        claim = Claim(**{**fields, "purpose": Purpose(fields["purpose"])})
    except (binascii.Error, ValueError, TypeError, KeyError) as error:
        raise BadToken("the internal token holds no claim") from error
    left_s = claim.expires_at - time.time()
    if left_s <= 0:
        raise BadToken(f"the internal token ended {-left_s:.0f} s ago")
    if left_s > LIFETIME_S + CLOCK_SKEW_S:
        raise BadToken(f"the internal token is good for {left_s:.0f} s; at most {LIFETIME_S} s are")
    return claim


def _sign(secret: str, text: str) -> str:
    digest = hmac.new(secret.encode(), b"strop.internal." + text.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
