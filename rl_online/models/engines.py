"""What engines hold and say of themselves."""

from django.db import models

from registry.models import Checkpoint
from registry.tenancy import TenantModel


class EngineHolding(TenantModel):
    """What an engine says it holds, by the digest it computed itself."""

    engine = models.CharField(max_length=100)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="holdings")
    tree_digest = models.CharField(max_length=64, default="", blank=True)
    error = models.TextField(default="", blank=True)  # why it could not load; empty when held
    reported_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["engine", "checkpoint"], name="one_holding_per_engine")]

    def __str__(self) -> str:
        return f"{self.engine} holds {self.checkpoint}"


class EngineReport(TenantModel):
    """What an engine last said of itself to this project. Counters run since it started; rates are made from two."""

    engine = models.CharField(max_length=100)
    code_version = models.CharField(max_length=60, default="", blank=True)
    adapter = models.CharField(max_length=40, default="", blank=True)
    device = models.CharField(max_length=100, default="", blank=True)
    host = models.CharField(max_length=200, default="", blank=True)
    pid = models.PositiveIntegerField(null=True)
    threads = models.PositiveIntegerField(null=True)
    max_batch = models.PositiveIntegerField(null=True)
    max_waiting = models.PositiveIntegerField(null=True)
    running = models.PositiveIntegerField(null=True)  # choices being decoded
    waiting = models.PositiveIntegerField(null=True)  # choices queued
    uptime_s = models.FloatField(null=True)
    tokens_generated = models.PositiveBigIntegerField(null=True)
    requests_refused = models.PositiveBigIntegerField(null=True)  # answered busy
    loads = models.PositiveIntegerField(null=True)
    load_failures = models.PositiveIntegerField(null=True)
    tokens_per_s = models.FloatField(null=True)  # between the last two reports; None: only one yet
    counted_at = models.DateTimeField(null=True)  # when `tokens_counted` was reported, the start of the next rate
    tokens_counted = models.PositiveBigIntegerField(null=True)
    reported_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "engine"], name="one_report_per_engine")]

    def __str__(self) -> str:
        return self.engine
