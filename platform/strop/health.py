"""Probes for whoever runs Strop: alive (does it move), ready (may it be sent requests), metrics (how is it going)."""

import hmac
from collections.abc import Iterator

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound, JsonResponse
from django.urls import path
from django.views.decorators.http import require_GET
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from strop.traffic import traffic

JOBS_SQL = """
SELECT queue, state, count(*),
       coalesce(extract(epoch FROM clock_timestamp() - min(run_at) FILTER (WHERE run_at <= clock_timestamp())), 0)
FROM jobs_job WHERE state <> 'done' GROUP BY queue, state
"""


@require_GET
def healthz(request: HttpRequest) -> HttpResponse:
    """503 when requests are open and none has moved for two minutes; connections elsewhere do not matter here."""
    status = 503 if traffic.is_stuck else 200
    return JsonResponse(
        {"status": "stuck" if traffic.is_stuck else "ok", "open_requests": traffic.num_open}, status=status
    )


@require_GET
def readyz(request: HttpRequest) -> HttpResponse:
    """503 while stopping or without the database. Without the broker work is only slower: ready, and said so."""
    checks = {"database": _database_answers(), "broker": _broker_answers()}
    is_ready = checks["database"] and not traffic.is_draining
    status = "stopping" if traffic.is_draining else "unavailable" if not is_ready else "ok"
    if is_ready and not checks["broker"]:
        status = "degraded"
    return JsonResponse({"status": status, **checks}, status=200 if is_ready else 503)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text. In production only with `Authorization: Bearer <STROP_METRICS_TOKEN>`, else as if not there."""
    if settings.PRODUCTION:
        wanted = f"Bearer {settings.METRICS_TOKEN}"
        if not settings.METRICS_TOKEN or not hmac.compare_digest(request.headers.get("Authorization", ""), wanted):
            return HttpResponseNotFound()
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


class JobMetrics(Collector):
    """Jobs by queue and state, and how long the longest waiting due one has waited, read when asked."""

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("strop_jobs", "Jobs that are not done.", labels=["queue", "state"])
        age = GaugeMetricFamily("strop_jobs_oldest_seconds", "Age of the oldest due job.", labels=["queue", "state"])
        with connection.cursor() as cursor:
            cursor.execute(JOBS_SQL)
            for queue, state, count, oldest_s in cursor.fetchall():
                jobs.add_metric([queue, state], count)
                age.add_metric([queue, state], float(oldest_s))
        yield jobs
        yield age

    def describe(self) -> list[Metric]:
        return []


class TrafficMetrics(Collector):
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("strop_web_open_requests", "Requests being answered.", value=traffic.num_open)


REGISTRY.register(JobMetrics())
REGISTRY.register(TrafficMetrics())


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return True
    except DatabaseError:
        return False


def _broker_answers() -> bool:
    url = settings.CELERY_BROKER_URL.replace("redis+socket://", "unix://")
    try:
        with redis.Redis.from_url(url, socket_timeout=0.5, socket_connect_timeout=0.5) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


urlpatterns = [path("healthz", healthz), path("readyz", readyz), path("metrics", metrics)]
