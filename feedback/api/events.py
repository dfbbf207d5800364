"""`POST /v1/events`: read the body, hand its items to `record_items`, answer with the receipt."""

import logging
from datetime import datetime
from uuid import UUID

import msgspec
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from feedback import wire
from feedback.services import door, outcomes
from feedback.services.record import RETRY_AFTER_S, Receipt, record_items
from feedback.services.refusals import Refused, note_refusals
from registry import browser_keys
from registry.auth import Caller, authenticate
from registry.errors import InvalidInput, NotFound, StropError, TooLarge, Unavailable, UnsupportedMedia
from registry.models import Scope
from registry.tenancy import tenant

log = logging.getLogger(__name__)


@csrf_exempt
@require_http_methods(["POST", "OPTIONS"])
def events(request: HttpRequest) -> HttpResponse:
    """202 with the outcome of every item, or the one reason why the whole request is refused."""
    if request.method == "OPTIONS":
        return _preflight(request)
    caller = None
    try:
        caller = authenticate(request, Scope.INGEST)
        browser_keys.check_origin(caller, request.headers.get("origin"))
        receipt = _take(request, caller)
    except (Unavailable, NotFound) as error:
        return _refused(request, error, None)  # there is no database, or no project, to count it in
    except StropError as error:
        return _refused(request, error, caller)
    except (OperationalError, InterfaceError):
        return _refused(request, Unavailable("the database is not available", retry_after_s=RETRY_AFTER_S), None)
    return _shared(HttpResponse(_encode(receipt), content_type="application/json", status=202), caller, request)


def _preflight(request: HttpRequest) -> HttpResponse:
    """What a browser asks before it sends from another site. It shows no key yet; the key's own sites decide later."""
    response = HttpResponse(status=204)
    response["Access-Control-Allow-Origin"] = request.headers.get("origin", "*")
    response["Access-Control-Allow-Methods"] = "POST"
    response["Access-Control-Allow-Headers"] = "authorization, content-type"
    response["Access-Control-Max-Age"] = "600"
    response["Vary"] = "Origin"
    return response


def _shared(response: HttpResponse, caller: Caller | None, request: HttpRequest) -> HttpResponse:
    """Let the page that a browser key was made for read the answer."""
    origin = request.headers.get("origin")
    if caller is not None and origin in caller.origins:
        response["Access-Control-Allow-Origin"] = origin
        response["Vary"] = "Origin"
    return response


def _take(request: HttpRequest, caller: Caller) -> Receipt:
    project_id = caller.project_id
    if project_id is None:
        raise InvalidInput("name the project whose items these are", field="x-strop-project")
    max_age = door.pass_through(project_id)
    received_at = timezone.now()
    try:
        items = wire.parse_request(_body(request), received_at=received_at, max_age=max_age)
    except wire.TooLargeRequest as error:
        raise TooLarge(error.message, field=error.field) from error
    except wire.BadRequest as error:
        raise InvalidInput(error.message, field=error.field) from error
    if caller.origins:
        browser_keys.count(caller, len(items))
        items = [wire.signals_only(item) for item in items]
    receipt = record_items(project_id, items, received_at=received_at)
    _note_refusals(project_id, caller.name, receipt, received_at)
    return receipt


def _note_refusals(project_id: UUID, key: str, receipt: Receipt, at: datetime) -> None:
    """What was stored is stored: a note that cannot be written must not turn the answer into an error."""
    refused = [
        Refused(outcome=item.outcome, message=item.message, field=item.field, item_id=item.id)
        for item in receipt.items
        if item.message is not None
    ]
    if not refused:
        return
    try:
        with tenant(project_id):
            note_refusals(project_id, key, refused, at=at)
    except DatabaseError as error:
        log.warning("refusals of %s are not noted: %s", key, error)


def _body(request: HttpRequest) -> bytes:
    if request.content_type != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMedia("send content-type application/json, not compressed", field="content-type")
    return request.read(wire.MAX_REQUEST_BYTES + 1)


def _encode(receipt: Receipt) -> bytes:
    items = [
        {"index": item.index, "id": item.id, "outcome": item.outcome}
        | ({} if item.message is None else {"field": item.field, "message": item.message})
        for item in receipt.items
    ]
    return msgspec.json.encode(
        {"received": len(items), "outcomes": receipt.outcomes, "orphans": receipt.orphans, "items": items}
    )


def _refused(request: HttpRequest, error: StropError, caller: Caller | None) -> HttpResponse:
    if caller is not None and caller.project_id is not None:
        now = timezone.now()
        one = Refused(outcome=f"request:{error.status}", message=error.message, field=error.field)
        with tenant(caller.project_id):
            note_refusals(caller.project_id, caller.name, [one], at=now)
            outcomes.count_refused(caller.project_id, now, error.status)
    body = {
        "error": {
            "code": error.code,
            "message": error.message,
            "field": error.field,
            "request_id": getattr(request, "request_id", None),
        }
    }
    response = HttpResponse(msgspec.json.encode(body), content_type="application/json", status=error.status)
    if error.retry_after_s is not None:
        response["Retry-After"] = str(error.retry_after_s)
    return _shared(response, caller, request)
