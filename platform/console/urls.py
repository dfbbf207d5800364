"""Every page's address: nouns, project first, one permalink per object."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path, register_converter

from console import references
from console.views import account, checkpoints, finding, flagged, lists, live, overview, saved_views, sessions, updates

register_converter(references.CheckpointName, "checkpoint")
register_converter(references.Reference, "reference")

app_name = "console"

pages = [
    path("", overview.home, name="project"),
    path("overview", overview.overview, name="overview"),
    path("overview/live", live.overview, name="overview-live"),
    path("palette", finding.palette, name="palette"),
    path("id/<path:reference>", finding.resolve, name="resolve"),
    path("export/<slug:list>", lists.export, name="export"),
    path("views/save", saved_views.save, name="view-save"),
    path("views/<int:view>/delete", saved_views.delete, name="view-delete"),
    path("sessions", lists.sessions, name="sessions"),
    path("sessions/<reference:session>", sessions.session, name="session"),
    path("turns", lists.turns, name="turns"),
    path("signals", lists.signals, name="signals"),
    path("flagged", flagged.flagged, name="flagged"),
    path("flagged/<int:flag>/resolve", flagged.resolve, name="flag-resolve"),
    path("updates", updates.updates, name="updates"),
    path("updates/new", updates.trigger, name="update-trigger"),
    path("updates/learning", updates.learning, name="learning-switch"),
    path("updates/<uuid:update>", updates.update, name="update"),
    path("updates/<uuid:update>/live", live.update, name="update-live"),
    path("updates/<uuid:update>/cancel", updates.cancel, name="update-cancel"),
    path("checkpoints", checkpoints.checkpoints, name="checkpoints"),
    path("checkpoints/<checkpoint:name>", checkpoints.checkpoint, name="checkpoint"),
    path("checkpoints/<checkpoint:name>/promote", checkpoints.promote, name="checkpoint-promote"),
    path("checkpoints/<checkpoint:name>/reject", checkpoints.reject, name="checkpoint-reject"),
    path("checkpoints/<checkpoint:name>/roll-back", checkpoints.roll_back, name="checkpoint-roll-back"),
]

urlpatterns = [
    path("", account.start, name="start"),
    path("sign-in", account.SignIn.as_view(), name="sign-in"),
    path("sign-in/<str:token>", account.sign_in_link, name="sign-in-link"),
    path("sign-out", LogoutView.as_view(), name="sign-out"),
    path("id/<path:reference>", finding.resolve_anywhere, name="resolve-anywhere"),
    path("p/<slug:project>/", include(pages)),
]
