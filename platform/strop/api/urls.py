from django.urls import path

from strop.api import docs
from strop.api.app import api

urlpatterns = [path("docs", docs.page, name="api-docs"), path("", api.urls)]
