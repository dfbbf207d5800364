"""Celery tasks: doorbells that wake a service. Ids in, nothing out."""

from celery import shared_task

from jobs import services


@shared_task(name="jobs.run")
def run(job_id: int) -> None:
    job = services.claim(job_id, services.worker_name())
    if job is not None:
        services.run(job)


@shared_task(name="jobs.sweep")
def sweep() -> None:
    services.fire_schedules()
    services.sweep()
