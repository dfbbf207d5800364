"""The web process' application: Django, with its traffic counted.

Calls to the data plane (`/v1/`) carry a key, not a cookie: they pass by the middleware that pages need. Each of these
costs a call of the API one or two changes of thread. Items (`/v1/events`) go further: nothing about them waits but the
database, so such a call is begun, answered and closed in one thread, which stays for the next one.
"""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django import setup
from django.conf import settings
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.signals import request_started
from django.http import HttpResponse
from django.urls import set_script_prefix

from strop.traffic import Application, Message, Receive, Send, traffic

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")

DATA_PLANE = "/v1/"
EVENTS = "/v1/events"
DATA_PLANE_MIDDLEWARE = ["registry.middleware.RequestIdMiddleware"]
TAKEN_TOGETHER = 12  # requests with items at once; each holds a connection, and the pool has to have some for pages


class DataPlaneHandler(ASGIHandler):
    def load_middleware(self, is_async: bool = False) -> None:
        whole, settings.MIDDLEWARE = settings.MIDDLEWARE, DATA_PLANE_MIDDLEWARE
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = whole


class EventsHandler(DataPlaneHandler):
    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(TAKEN_TOGETHER, thread_name_prefix="events")

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        loop = asyncio.get_running_loop()
        await self.send_response(await loop.run_in_executor(self._threads, self._answer, scope, body), send)

    def _answer(self, scope: Message, body: Any) -> HttpResponse:
        set_script_prefix(get_script_prefix(scope))
        request_started.send(sender=self.__class__, scope=scope)
        with body:
            request, response = self.create_request(scope, body)
            if request is not None:
                response = self.get_response(request)
        response.close()  # gives the connection back
        return response


def dispatch(pages: Application, data_plane: Application, events: Application) -> Application:
    async def application(scope: Message, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        chosen = events if path == EVENTS else data_plane if path.startswith(DATA_PLANE) else pages
        await chosen(scope, receive, send)

    return application


setup(set_prefix=False)
application = traffic.wrap(dispatch(ASGIHandler(), DataPlaneHandler(), EventsHandler()))
