from django.apps import AppConfig


class StropConfig(AppConfig):
    name = "strop"

    def ready(self) -> None:
        # Importing is registering: the Celery app becomes the default one, system checks are known.
        from strop import celery, checks  # noqa: F401
