from django.urls import path

from evals.api.runs import runs

app_name = "evals"
urlpatterns = [path("runs", runs, name="runs")]
