from django.apps import AppConfig


class RegistryConfig(AppConfig):
    name = "registry"

    def ready(self) -> None:
        from jobs import handlers, listeners
        from registry import calls, deliveries, notifications

        handlers.register(notifications.DELIVER_JOB, deliveries.deliver_job)
        handlers.schedule("registry.forget-calls", 3600, calls.forget_old_calls)
        listeners.when_quarantined(deliveries.on_job_quarantined)
