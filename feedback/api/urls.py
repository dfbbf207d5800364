from django.urls import path

from feedback.api.events import events

app_name = "feedback"
urlpatterns = [path("events", events, name="events")]
