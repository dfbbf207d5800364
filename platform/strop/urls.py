"""Every address of the product: data plane under /v1, management under /api/v1, pages for people elsewhere."""

from django.urls import include, path

urlpatterns = [
    path("", include("strop.health")),
    path("v1/", include("feedback.api.urls")),
    path("v1/", include("evals.api.urls")),
    path("v1/", include("rl_online.api.urls")),
    path("api/v1/", include("strop.api.urls")),
    path("", include("console.urls")),
]

handler400 = "console.views.errors.bad_request"
handler403 = "console.views.errors.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.server_error"
