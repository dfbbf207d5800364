"""The web process' application: Django, with its traffic counted.

Calls to the data plane (`/v1/`) carry a key, not a cookie: they pass by the middleware that pages need. Each of these
costs a call of the API one or two changes of thread.
"""

import os

from django import setup
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

from strop.traffic import Application, Message, Receive, Send, traffic

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")

DATA_PLANE = "/v1/"
DATA_PLANE_MIDDLEWARE = ["registry.middleware.RequestIdMiddleware"]


class DataPlaneHandler(ASGIHandler):
    def load_middleware(self, is_async: bool = False) -> None:
        whole, settings.MIDDLEWARE = settings.MIDDLEWARE, DATA_PLANE_MIDDLEWARE
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = whole


def dispatch(pages: Application, data_plane: Application) -> Application:
    async def application(scope: Message, receive: Receive, send: Send) -> None:
        chosen = data_plane if scope.get("path", "").startswith(DATA_PLANE) else pages
        await chosen(scope, receive, send)

    return application


setup(set_prefix=False)
application = traffic.wrap(dispatch(ASGIHandler(), DataPlaneHandler()))
