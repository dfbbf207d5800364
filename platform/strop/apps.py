from django.apps import AppConfig


class StropConfig(AppConfig):
    name = "strop"

    def ready(self) -> None:
        # Importing is registering: the Celery app becomes the default one, system checks are known.
        from jobs import handlers
        from registry.backups import BACKUP_JOB
        from strop import celery, checks  # noqa: F401
        from strop.backup.job import backup_job

        handlers.register(BACKUP_JOB, backup_job)
