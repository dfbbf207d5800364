"""What an engine reports, and who has waited for it: held weights, a rate made of two reports, proofs and swaps.

Inside a tenant. Not here: which weights engines should hold (services.holdings).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from jobs.services import enqueue
from registry.models import Deployment
from rl_online.models import EngineHolding, EngineReport, UpdateRun, UpdateState
from rl_online.services import device_hours, holdings
from rl_online.services.runs import PROVE_JOB

RATE_OVER_S = 5.0  # an engine reports once for each policy: two reports closer than this make no rate


def record_report(
    engine: str,
    policy_id: UUID,
    *,
    held: Sequence[dict[str, Any]],
    failed: Sequence[dict[str, Any]],
    about: Mapping[str, Any] | None,
) -> None:
    """Write what is held; where that is more than before, go on with what waited for it."""
    before = _held_by(engine, policy_id)
    holdings.record_held(engine, policy_id, held, failed)
    if about is not None:
        record_about(engine, about)
    if _held_by(engine, policy_id) - before:
        _wake_proofs(policy_id)
        note_swap(policy_id)


def record_about(engine: str, about: Mapping[str, Any]) -> EngineReport:
    """Write the newest report over the last one."""
    _row, is_first = EngineReport.objects.get_or_create(engine=engine)
    row = EngineReport.objects.select_for_update().get(engine=engine)
    device_hours.record_held(engine, since=None if is_first else row.reported_at, uptime_s=about.get("uptime_s"))
    has_restarted = row.uptime_s is not None and (about.get("uptime_s") or 0.0) < row.uptime_s
    if has_restarted:
        row.counted_at = row.tokens_counted = row.tokens_per_s = None
    for name, value in about.items():
        setattr(row, name, value)
    _count(row, timezone.now())
    row.save()
    return row


def note_swap(policy_id: UUID) -> None:
    """How long the serving checkpoint took from its promotion until an engine held it, once."""
    deployment = Deployment.objects.select_related("checkpoint").filter(policy_id=policy_id, alias="default").first()
    if deployment is None or not holdings.is_held(deployment.checkpoint):
        return
    run = (
        UpdateRun.objects.select_for_update()
        .filter(checkpoint=deployment.checkpoint, state=UpdateState.PROMOTED)
        .exclude(timings__has_key="swap")
        .first()
    )
    if run is not None:
        run.timings = {**run.timings, "swap": round((timezone.now() - deployment.changed_at).total_seconds(), 3)}
        run.save(update_fields=["timings"])


def _held_by(engine: str, policy_id: UUID) -> set[UUID]:
    rows = EngineHolding.objects.filter(engine=engine, checkpoint__policy_id=policy_id, error="")
    return set(rows.values_list("checkpoint_id", flat=True))


def _wake_proofs(policy_id: UUID) -> None:
    """A proof waits until its checkpoints are held; the job it left in the queue is due now."""
    for run in UpdateRun.objects.filter(policy_id=policy_id, state=UpdateState.PROVING):
        enqueue(PROVE_JOB, project_id=run.project_id, payload={"run": str(run.id)}, key=str(run.id))


def _count(row: EngineReport, now: datetime) -> None:
    """Bring the rate up to date and start the next one."""
    if row.tokens_generated is None:
        return
    if row.counted_at is None or row.tokens_counted is None:
        row.counted_at, row.tokens_counted = now, row.tokens_generated
        return
    passed = (now - row.counted_at).total_seconds()
    if passed >= RATE_OVER_S:
        row.tokens_per_s = max(0, row.tokens_generated - row.tokens_counted) / passed
        row.counted_at, row.tokens_counted = now, row.tokens_generated
