"""Answers kept for calls that may come again with the same `Idempotency-Key`, and when they are forgotten."""

from datetime import timedelta

from django.utils import timezone

from registry.models import IdempotentCall
from registry.services import all_projects
from registry.tenancy import tenant

KEEP = timedelta(days=1)


def forget_old_calls() -> None:
    for project in all_projects():
        with tenant(project.id):
            IdempotentCall.objects.filter(created_at__lt=timezone.now() - KEEP).delete()
