"""What is wrong with a call becomes `{"error": {"code", "message", "field", "request_id"}}`, as everywhere else."""

from typing import Any

from django.db import DatabaseError, DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import NinjaAPI, Schema
from ninja.errors import HttpError, ValidationError

from registry.errors import InvalidInput, NotFound, StropError, Unavailable


class Error(Schema):
    code: str
    message: str
    field: str | None
    request_id: str | None


class Refusal(Schema):
    error: Error


def answer(request: HttpRequest, error: StropError) -> HttpResponse:
    body = {
        "code": error.code,
        "message": error.message,
        "field": error.field,
        "request_id": getattr(request, "request_id", None),
    }
    response = JsonResponse({"error": body}, status=error.status)
    if error.retry_after_s is not None:
        response["Retry-After"] = str(error.retry_after_s)
    return response


def add_handlers(api: NinjaAPI) -> None:
    def stated(request: HttpRequest, error: Any) -> HttpResponse:
        return answer(request, error)

    def invalid(request: HttpRequest, error: Any) -> HttpResponse:
        return answer(request, _first(error.errors))

    def missing(request: HttpRequest, error: Any) -> HttpResponse:
        return answer(request, NotFound("there is no such thing in this project"))

    def refused(request: HttpRequest, error: Any) -> HttpResponse:
        """Ninja's own, for a body that is no JSON."""
        return answer(request, InvalidInput(str(error)))

    def away(request: HttpRequest, error: Any) -> HttpResponse:
        return answer(request, Unavailable("the database is not available", retry_after_s=2))

    def unstorable(request: HttpRequest, error: Any) -> HttpResponse:
        if isinstance(error, OperationalError):
            return away(request, error)
        if isinstance(error, DataError):
            return answer(request, InvalidInput("holds a character or a number that cannot be stored"))
        raise error

    api.add_exception_handler(StropError, stated)
    api.add_exception_handler(ValidationError, invalid)
    api.add_exception_handler(Http404, missing)
    api.add_exception_handler(HttpError, refused)
    api.add_exception_handler(DatabaseError, unstorable)
    api.add_exception_handler(InterfaceError, away)


def _first(errors: list[dict[str, Any]]) -> InvalidInput:
    """The first field that is wrong, by its place below the body, the query or the path."""
    first = errors[0] if errors else {"msg": "cannot be read", "loc": ()}
    place = [
        str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path", "asked", "sent", "filters")
    ]
    return InvalidInput(str(first["msg"]), field=".".join(place) or None)
