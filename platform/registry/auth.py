"""Who calls: an API key bound to one project, or one of the product's own processes with an internal token.

A key is `strop_<prefix>.<secret>`; only SHA-256 of the secret is stored (256 random bits need no slow hash), and
compared in constant time. A key that was found is trusted for a second without asking the database again, so a revoked
one may open the door for as long. An internal token (`registry.internal_token`) is good for minutes and one purpose.
"""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

from registry import internal_token as internal
from registry.errors import Forbidden, Unauthorized
from registry.internal_token import Purpose
from registry.models import ApiKey, Scope
from registry.tenancy import directory, tenant

LAST_USED_EVERY = timedelta(minutes=1)
TRUSTED_FOR_S = 1.0
MAX_TRUSTED = 10_000
_trusted: dict[str, tuple[float, ApiKey]] = {}  # by prefix: when the row was read, and what it said
PURPOSE_SCOPES = {Purpose.WEIGHTS: Scope.INFER, Purpose.ANSWERS: Scope.INFER, Purpose.EVENTS: Scope.INGEST}


@dataclass(frozen=True, kw_only=True)
class Caller:
    project_id: UUID | None  # None: an internal token for weights, which are fetched for every project
    name: str  # "key:<prefix>" or "internal"
    scopes: frozenset[str]
    purpose: Purpose | None = None  # of an internal token
    source: str | None = None  # which an internal token may mark turns with
    origins: tuple[str, ...] = ()  # not empty: a browser key, see registry.browser_keys
    items_per_minute: int | None = None

    @property
    def is_internal(self) -> bool:
        return self.purpose is not None


def authenticate(request: HttpRequest, scope: Scope | str) -> Caller:
    """Raises Unauthorized for no or a wrong key, Forbidden when the key lacks `scope`."""
    caller = identify(request.headers.get("authorization", ""))
    if not (str(scope) in caller.scopes or Scope.ADMIN in caller.scopes):
        raise Forbidden(f"this key lacks the scope {str(scope)!r}")
    return caller


def identify(authorization: str) -> Caller:
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthorized("send the header `Authorization: Bearer <key>`")
    token = token.strip()
    if token.startswith(internal.PREFIX):
        return _internal(token)
    return _by_key(token)


def internal_token(purpose: Purpose, *, project: UUID | None = None, source: str | None = None) -> str:
    """What one of the product's own processes sends as Bearer with one request."""
    return internal.mint(settings.HOME.secret("internal"), purpose, project=project, source=source)


def new_key_text() -> tuple[str, str, bytes]:
    """(whole key to show once, prefix to keep and look up by, digest to keep)."""
    prefix = f"strop_{secrets.token_hex(5)}"
    secret = secrets.token_urlsafe(32)
    return f"{prefix}.{secret}", prefix, hashlib.sha256(secret.encode()).digest()


def _internal(token: str) -> Caller:
    try:
        claim = internal.read(settings.HOME.secret("internal"), token)
    except internal.BadToken as error:
        raise Unauthorized(str(error)) from None
    return Caller(
        project_id=None if claim.project is None else UUID(claim.project),
        name="internal",
        scopes=frozenset({PURPOSE_SCOPES[claim.purpose]}),
        purpose=claim.purpose,
        source=claim.source,
    )


def _by_key(token: str) -> Caller:
    prefix, _, secret = token.partition(".")
    given = hashlib.sha256(secret.encode()).digest()
    if "\0" in prefix:
        raise Unauthorized("this key opens nothing")
    key = _find(prefix)
    known = bytes(key.digest) if key else b"\0" * 32
    if not hmac.compare_digest(given, known) or key is None or not key.is_live:
        raise Unauthorized("this key opens nothing: unknown, expired or revoked")
    _note_use(key)
    return Caller(
        project_id=key.project_id,
        name=f"key:{key.prefix}",
        scopes=frozenset(key.scopes),
        origins=tuple(key.origins),
        items_per_minute=key.items_per_minute,
    )


def _find(prefix: str) -> ApiKey | None:
    read_at, key = _trusted.get(prefix, (0.0, None))
    if key is not None and time.monotonic() - read_at < TRUSTED_FOR_S:
        return key
    with directory():
        key = ApiKey._base_manager.filter(prefix=prefix).first()
    if len(_trusted) >= MAX_TRUSTED:
        _trusted.clear()
    if key is not None:
        _trusted[prefix] = (time.monotonic(), key)
    return key


def forget_key(prefix: str) -> None:
    """Ask the database for this key next time; what changes a key calls it, other processes learn within a second."""
    _trusted.pop(prefix, None)


def _note_use(key: ApiKey) -> None:
    now = timezone.now()
    if key.last_used_at is None or key.last_used_at < now - LAST_USED_EVERY:
        with tenant(key.project_id):
            ApiKey.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_EVERY), pk=key.pk).update(
                last_used_at=now
            )
        key.last_used_at = now
