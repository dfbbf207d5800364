"""Who calls: an API key bound to one project, or the product's own processes with the internal token.

A key is `strop_<prefix>.<secret>`; only SHA-256 of the secret is stored (256 random bits need no slow hash), and
compared in constant time. The internal token may act for any project it names in `x-strop-project`.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

from registry.errors import Forbidden, InvalidInput, Unauthorized
from registry.models import ApiKey, Scope
from registry.tenancy import directory, tenant

LAST_USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Caller:
    project_id: UUID | None  # None: the internal token without a project
    name: str  # "key:<prefix>" or "internal"
    scopes: frozenset[str]
    is_internal: bool


def authenticate(request: HttpRequest, scope: Scope | str) -> Caller:
    """Raises Unauthorized for no or a wrong key, Forbidden when the key lacks `scope`."""
    caller = identify(request.headers.get("authorization", ""), request.headers.get("x-strop-project", ""))
    if not (caller.is_internal or str(scope) in caller.scopes or Scope.ADMIN in caller.scopes):
        raise Forbidden(f"this key lacks the scope {str(scope)!r}")
    return caller


def identify(authorization: str, project: str = "") -> Caller:
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthorized("send the header `Authorization: Bearer <key>`")
    token = token.strip()
    if token.startswith("internal."):
        return _internal(token.removeprefix("internal."), project)
    return _by_key(token)


def internal_token() -> str:
    """What the product's own processes send as Bearer."""
    return f"internal.{settings.HOME.secret('internal')}"


def new_key_text() -> tuple[str, str, bytes]:
    """(whole key to show once, prefix to keep and look up by, digest to keep)."""
    prefix = f"strop_{secrets.token_hex(5)}"
    secret = secrets.token_urlsafe(32)
    return f"{prefix}.{secret}", prefix, hashlib.sha256(secret.encode()).digest()


def _internal(secret: str, project: str) -> Caller:
    if not hmac.compare_digest(secret.encode(), settings.HOME.secret("internal").encode()):
        raise Unauthorized("the internal token is not the one of this home")
    try:
        project_id = UUID(project) if project else None
    except ValueError:
        raise InvalidInput(f"found {project!r}; give the project's UUID", field="x-strop-project") from None
    return Caller(project_id=project_id, name="internal", scopes=frozenset(), is_internal=True)


def _by_key(token: str) -> Caller:
    prefix, _, secret = token.partition(".")
    given = hashlib.sha256(secret.encode()).digest()
    if "\0" in prefix:
        raise Unauthorized("this key opens nothing")
    with directory():
        key = ApiKey._base_manager.filter(prefix=prefix).first()
    known = bytes(key.digest) if key else b"\0" * 32
    if not hmac.compare_digest(given, known) or key is None or not key.is_live:
        raise Unauthorized("this key opens nothing: unknown, expired or revoked")
    _note_use(key)
    return Caller(project_id=key.project_id, name=f"key:{key.prefix}", scopes=frozenset(key.scopes), is_internal=False)


def _note_use(key: ApiKey) -> None:
    now = timezone.now()
    if key.last_used_at is None or key.last_used_at < now - LAST_USED_EVERY:
        with tenant(key.project_id):
            ApiKey.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_EVERY), pk=key.pk).update(
                last_used_at=now
            )
