"""Error pages. They name the request, ask the database nothing, and so also stand when it is down."""

from django.http import HttpRequest, HttpResponse
from django.template import loader

TITLES = {
    400: ("This request could not be read", "It was malformed or came from another site. Go back and try again."),
    403: ("Your role does not allow this", "Ask an owner of the project for the role, or go back."),
    404: ("Nothing here", "The address is wrong, or the page belongs to a project you are not a member of."),
    500: ("This went wrong on our side", "The error is logged under the request id below."),
}


def _page(request: HttpRequest, status: int, detail: str = "") -> HttpResponse:
    title, advice = TITLES[status]
    context = {
        "status": status,
        "title": title,
        "advice": advice,
        "detail": detail,
        "request_id": getattr(request, "request_id", "unknown"),
    }
    return HttpResponse(loader.get_template("errors/error.html").render(context), status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, 400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, 403, str(exception))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, 404)


def server_error(request: HttpRequest) -> HttpResponse:
    return _page(request, 500)


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    return _page(request, 403, "The form had expired. Reload the page it was on and send it again.")
