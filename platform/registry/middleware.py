"""Every answer carries a request id of our own; a client's is kept apart and never keys any state."""

from collections.abc import Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

from registry.ids import new_id


class RequestIdMiddleware:
    async_capable = True
    sync_capable = True

    def __init__(self, get_response: Callable) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if iscoroutinefunction(self.get_response):
            return self._call_async(request)
        _stamp(request)
        return _name(self.get_response(request), request)

    async def _call_async(self, request: HttpRequest) -> HttpResponse:
        _stamp(request)
        return _name(await self.get_response(request), request)


def _stamp(request: HttpRequest) -> None:
    request.request_id = new_id()


def _name(response: HttpResponse, request: HttpRequest) -> HttpResponse:
    response["x-request-id"] = request.request_id
    return response
