"""`POST /v1/runs`: a run that another program made, answered after it is stored."""

import msgspec
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from evals.api import wire
from evals.services.importing import Imported, import_run
from registry.auth import authenticate
from registry.errors import Forbidden, InvalidInput, StropError, TooLarge, Unavailable, UnsupportedMedia
from registry.models import Scope

RETRY_AFTER_S = 2


@csrf_exempt
@require_POST
def runs(request: HttpRequest) -> HttpResponse:
    """201 for a new run, 200 where it was there already and is unchanged or extended."""
    try:
        return _answer(_take(request))
    except StropError as error:
        return _refused(request, error)
    except (OperationalError, InterfaceError):
        return _refused(request, Unavailable("the database is not available", retry_after_s=RETRY_AFTER_S))


def _take(request: HttpRequest) -> Imported:
    caller = authenticate(request, Scope.INGEST)
    if caller.origins:
        raise Forbidden("a browser key sends signals only")
    if caller.project_id is None:
        raise InvalidInput("name the project whose run this is", field="x-strop-project")
    if request.content_type != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMedia("send content-type application/json, not compressed", field="content-type")
    try:
        run = wire.parse_run(request.read(wire.MAX_REQUEST_BYTES + 1))
    except wire.BadRun as error:
        kind = TooLarge if error.is_too_large else InvalidInput
        raise kind(error.message, field=error.field) from None
    return import_run(caller.project_id, run)


def _answer(imported: Imported) -> HttpResponse:
    body = {
        "id": str(imported.id),
        "benchmark": imported.benchmark,
        "outcome": imported.outcome,
        "results": {"new": imported.num_new, "known": imported.num_known, "conflicts": imported.num_conflicts},
    }
    status = 201 if imported.outcome == "imported" else 200
    return HttpResponse(msgspec.json.encode(body), content_type="application/json", status=status)


def _refused(request: HttpRequest, error: StropError) -> HttpResponse:
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
    return response
