from django.urls import path

from rl_online.api import gateway, weights

app_name = "rl_online"
urlpatterns = [
    path("chat/completions", gateway.chat_completions, name="chat-completions"),
    path("completions", gateway.completions, name="completions"),
    path("models", gateway.models, name="models"),
    path("weights/policies", weights.policies, name="weights-policies"),
    path("weights/head", weights.head, name="weights-head"),
    path("weights/objects/<uuid:policy>/<path:path>", weights.objects, name="weights-objects"),
    path("weights/held", weights.held, name="weights-held"),
]
