"""Celery: a doorbell for rows in PostgreSQL, never the place where work is kept.

The settings are those that survive a killed child, a killed worker and a broker that forgets (docs/operations.md).
"""

import os

from celery import Celery

os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")

VISIBILITY_TIMEOUT_S = 120
SWEEP_EVERY_S = 2.0
TRANSPORT_OPTIONS = {
    "visibility_timeout": VISIBILITY_TIMEOUT_S,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 2,
    "socket_timeout": 20,
}

app = Celery("strop")
app.set_default()  # the current app is per thread; web views run in several
app.conf.update(
    broker_transport_options=TRANSPORT_OPTIONS,
    result_backend_transport_options=TRANSPORT_OPTIONS,
    visibility_timeout=VISIBILITY_TIMEOUT_S,
    result_backend=None,
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_time_limit=100,
    task_soft_time_limit=90,
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=30,
    worker_max_memory_per_child=600_000,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    worker_hijack_root_logger=False,
    task_serializer="json",
    accept_content=["json"],
    task_publish_retry=True,
    task_publish_retry_policy={"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1},
    broker_connection_retry_on_startup=True,
    task_default_queue="default",
    timezone="UTC",
    beat_schedule={"sweep": {"task": "jobs.sweep", "schedule": SWEEP_EVERY_S, "options": {"expires": 10}}},
)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
