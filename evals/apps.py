from django.apps import AppConfig


class EvalsConfig(AppConfig):
    name = "evals"

    def ready(self) -> None:
        from django.conf import settings

        from evals.scorers.execution import Runner
        from evals.services import anchors, canaries, imported_standings, retries, uploads
        from jobs import handlers

        Runner.allow_none = settings.SANDBOX_ALLOW_NONE
        handlers.register(canaries.CANARY_JOB, canaries.canaries_job, queue="judge")
        handlers.register(retries.RETRY_JOB, retries.retry_job, queue="judge")
        handlers.register(anchors.ANCHOR_JOB, anchors.anchor_job, queue="judge")
        handlers.register(uploads.UPLOAD_JOB, uploads.upload_job)
        handlers.register(imported_standings.STANDINGS_JOB, imported_standings.standings_job)
        handlers.schedule("evals.forget-uploads", 3600, uploads.forget_uploads)
