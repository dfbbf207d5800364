from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"

    def ready(self) -> None:
        from jobs import handlers, services

        handlers.schedule("jobs.forget-done", 3600, services.forget_done)
