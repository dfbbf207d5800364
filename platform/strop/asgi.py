"""The web process' application: Django, with its traffic counted."""

import os

from django.core.asgi import get_asgi_application

from strop.traffic import traffic

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")

application = traffic.wrap(get_asgi_application())
