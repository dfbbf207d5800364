from django.apps import AppConfig


class StropConfig(AppConfig):
    name = "strop"

    def ready(self) -> None:
        from strop import checks  # noqa: F401  system checks register themselves on import
