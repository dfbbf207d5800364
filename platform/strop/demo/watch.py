"""What the demo reads of its own loop: where it stands now, and the rows of the table. Reads only."""

from dataclasses import dataclass
from statistics import fmean
from uuid import UUID

from django.db import close_old_connections

from evals import selectors as evals_selectors
from evals.models import EvalRun
from feedback.models import Turn
from feedback.selectors import accept_share
from registry.services import find_policy
from registry.tenancy import tenant
from rl_online.models import BatchSample, GateReport, UpdateRun, UpdateState
from rl_online.selectors import LineEntry, checkpoint_line, loop_status
from rl_online.services.updates import preview_update
from strop.demo.stage import GATE, POLICY
from strop.demo.table import Row


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The loop at one moment."""

    num_ready: int  # labelled turns no update has taken yet
    num_updates: int  # that are over
    running: UpdateRun | None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one update ended."""

    version: int
    state: str  # promoted, held, failed, cancelled
    decision: str | None  # the gate's word
    reasons: list[str]
    seconds: float | None
    error: str

    @property
    def is_complete(self) -> bool:
        """The loop went all the way: trained, proved, decided."""
        return self.state in (UpdateState.PROMOTED, UpdateState.HELD)


def standing(project_id: UUID) -> Standing:
    close_old_connections()
    with tenant(project_id):
        status = loop_status(find_policy(POLICY))
        over = [state for state in UpdateState.values if UpdateState(state).is_over]
        return Standing(
            num_ready=preview_update(status.policy).num_ready,
            num_updates=UpdateRun.objects.filter(policy=status.policy, state__in=over).count(),
            running=status.running,
        )


def is_served(project_id: UUID) -> bool:
    """Whether an engine holds the serving checkpoint."""
    with tenant(project_id):
        status = loop_status(find_policy(POLICY))
        return any(holding.checkpoint_id == status.deployment.checkpoint_id for holding in status.engines)


def current(project_id: UUID, run_id: UUID) -> UpdateRun:
    with tenant(project_id):
        return UpdateRun.objects.select_related("checkpoint").get(id=run_id)


def outcome(project_id: UUID, run_id: UUID) -> Outcome:
    with tenant(project_id):
        run = UpdateRun.objects.get(id=run_id)
        report = GateReport.objects.filter(run=run).order_by("-created_at").first()
        return Outcome(
            version=run.version,
            state=run.state,
            decision=report.decision if report else None,
            reasons=list(report.reasons) if report else [],
            seconds=run.timings.get("total"),
            error=run.error,
        )


def rows(project_id: UUID) -> list[Row]:
    """One for each checkpoint, oldest first."""
    with tenant(project_id):
        shares = {group.key: group for group in accept_share(by="checkpoint", source="production")}
        found = []
        for entry in reversed(checkpoint_line(find_policy(POLICY))):
            group = shares.get(str(entry.checkpoint))
            found.append(
                Row(
                    checkpoint=str(entry.checkpoint),
                    turns=group.turns if group else 0,
                    accepted=group.accepted if group else 0,
                    share=group.share if group else None,
                    low=group.low if group else None,
                    high=group.high if group else None,
                    held_out=_held_out(str(entry.checkpoint)),
                    lag=_lag(entry.run) if entry.run else None,
                    seconds=entry.run.timings.get("total") if entry.run else None,
                    decision=_decision(entry),
                    is_serving=entry.is_serving,
                )
            )
        return found


def _held_out(checkpoint: str) -> float | None:
    run = EvalRun.objects.filter(benchmark__name=GATE, checkpoint=checkpoint).order_by("-started_at").first()
    return evals_selectors.summary(run).mean if run else None


def _lag(run: UpdateRun) -> float | None:
    """Mean over the batch; every parent is one update on, since only promoted checkpoints have children."""
    turns = BatchSample.objects.filter(batch=run.batch).values_list("turn_ref", flat=True)
    versions = Turn.objects.filter(turn_id__in=turns).values_list("version", flat=True)
    line = _line_of(run)
    lags = [line.index(version) for version in versions if version in line]
    return fmean(lags) if lags else None


def _line_of(run: UpdateRun) -> list[int]:
    """Versions from the update's parent back to the first."""
    versions = []
    checkpoint = run.parent
    while checkpoint is not None:
        versions.append(checkpoint.version)
        checkpoint = checkpoint.parent
    return versions


def _decision(entry: LineEntry) -> str:
    if entry.run is None:
        return "first"
    return entry.report.decision if entry.report else str(entry.run.state)
