from django.apps import AppConfig


class RegistryConfig(AppConfig):
    name = "registry"

    def ready(self) -> None:
        from jobs import handlers, listeners
        from registry import deliveries, notifications

        handlers.register(notifications.DELIVER_JOB, deliveries.deliver_job)
        listeners.when_quarantined(deliveries.on_job_quarantined)
