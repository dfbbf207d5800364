from django.apps import AppConfig


class EvalsConfig(AppConfig):
    name = "evals"

    def ready(self) -> None:
        from django.conf import settings

        from evals.scorers.execution import Runner

        Runner.allow_none = settings.SANDBOX_ALLOW_NONE
