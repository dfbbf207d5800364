"""Celery tasks: doorbells that wake a service. Ids in, nothing out."""

from celery import Task, shared_task

from jobs import beats, services


@shared_task(name="jobs.run")
def run(job_id: int) -> None:
    job = services.claim(job_id, services.worker_name())
    if job is not None:
        services.run(job)


@shared_task(name="jobs.sweep", bind=True)
def sweep(self: Task) -> None:
    services.fire_schedules()
    services.sweep()
    beats.note_sweep(self.request.origin)
