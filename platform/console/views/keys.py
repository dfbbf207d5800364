"""Settings -> Keys: making one, whose text is shown once, and revoking one."""

from datetime import timedelta

from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from registry.browser_keys import DEFAULT_ITEMS_PER_MINUTE
from registry.errors import Forbidden, InvalidInput, StropError
from registry.models import ApiKey, Role, Scope
from registry.services import create_key, revoke_key

SCOPES = (
    (Scope.INGEST, "send turns and signals"),
    (Scope.INFER, "ask the gateway, fetch weights"),
    (Scope.READ, "read through the management API"),
    (Scope.TRAIN, "start and cancel updates, promote and roll back"),
    (Scope.ADMIN, "all of these, and manage keys and webhooks"),
)
LIVES = ((0, "does not expire"), (7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "a year"))


@require_safe
@member_required(Role.ENGINEER)
def keys(request: MemberRequest) -> HttpResponse:
    return _page(request)


@never_cache
@require_POST
@member_required(Role.ENGINEER)
def create(request: MemberRequest) -> HttpResponse:
    """The page again with the key's text, which is shown this once."""
    try:
        with transaction.atomic():
            text, key = make_key(request)
    except Forbidden:
        raise
    except StropError as error:
        return _page(request, error=error)
    return _page(request, text=text, key=key)


@require_POST
@member_required(Role.ENGINEER)
def revoke(request: MemberRequest, prefix: str) -> HttpResponse:
    def act() -> str:
        key = revoke_key(prefix, actor=request.user.get_username(), reason=request.POST.get("reason", "").strip())
        return f"{key.name} opens nothing any more."

    return carry_out(request, act, back=reverse("console:keys", args=[request.member.project.slug]))


def make_key(request: MemberRequest) -> tuple[str, ApiKey]:
    """The key that the form asks for. Raises Forbidden where it would open more than the person may do."""
    sent = request.POST
    is_browser = sent.get("kind") == "browser"
    scopes = [str(Scope.INGEST)] if is_browser else sent.getlist("scopes")
    if Scope.ADMIN in scopes and not Role(request.member.role).may(Role(Role.OWNER)):
        raise Forbidden("only an owner makes a key with the scope admin")
    days = _whole(sent.get("days", "0"), "days")
    return create_key(
        sent.get("name", ""),
        scopes,
        actor=request.user.get_username(),
        created_by=request.user,
        expires_at=timezone.now() + timedelta(days=days) if days else None,
        origins=_origins(sent.get("origins", "")) if is_browser else (),
        items_per_minute=_whole(sent.get("items_per_minute", ""), "items_per_minute") if is_browser else None,
    )


def _origins(text: str) -> list[str]:
    found = text.split()
    if not found:
        raise InvalidInput("name at least one site, e.g. https://app.example.com", field="origins")
    return [one.rstrip("/") for one in found]


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise InvalidInput(f"found {text[:40]!r}; give a whole number", field=name)
    return int(text)


def _page(
    request: MemberRequest, *, text: str | None = None, key: ApiKey | None = None, error: StropError | None = None
) -> HttpResponse:
    context = {
        "keys": ApiKey.objects.select_related("created_by").order_by("-created_at")[:500],
        "scopes": SCOPES,
        "lives": LIVES,
        "new_text": text,
        "new_key": key,
        "items_per_minute": DEFAULT_ITEMS_PER_MINUTE,
        "problem": error.message if error else "",
        "wrong": error.field if error else "",
        "sent": request.POST,
        "sent_scopes": request.POST.getlist("scopes"),
    }
    return render(request, "settings/keys.html", context, status=error.status if error else 200)
