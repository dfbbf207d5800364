"""Engines: what each says of itself and holds, how far that is behind, which processes stand beside them."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from jobs.models import ProcessBeat
from registry.models import Checkpoint, Deployment, Policy
from registry.services import lineage
from rl_online.models import EngineHolding, EngineReport
from rl_online.services.holdings import REPORT_HOLDS_FOR, Wanted, wanted_checkpoints
from rl_online.serving.client import EngineClient
from rl_online.serving.protocol import EngineError, EngineUnavailable

SILENT_AFTER = timedelta(seconds=60)  # an engine reports each 20 s
ANSWER_WITHIN_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """One checkpoint that an engine holds, or could not load."""

    holding: EngineHolding
    lag: int | None  # updates behind what serves; None: not on the serving line
    role: str | None  # what it is wanted for; None: no longer wanted

    @property
    def is_right(self) -> bool:
        return not self.holding.error and self.holding.tree_digest == self.holding.checkpoint.tree_digest


@dataclass(kw_only=True, slots=True)
class Engine:
    name: str
    report: EngineReport | None = None  # None: it only said what it holds
    held: list[Held] = field(default_factory=list)

    @property
    def about(self) -> EngineReport:
        """What it said of itself; everything unknown where it said nothing."""
        return self.report or EngineReport(engine=self.name)

    @property
    def last_at(self) -> datetime | None:
        times = [one.holding.reported_at for one in self.held] + ([self.report.reported_at] if self.report else [])
        return max(times, default=None)

    @property
    def is_silent(self) -> bool:
        return self.last_at is None or timezone.now() - self.last_at > SILENT_AFTER

    @property
    def num_failures(self) -> int:
        return sum(bool(one.holding.error) for one in self.held)

    @property
    def holds_serving(self) -> bool:
        return any(one.role == "serving" and one.is_right for one in self.held)

    @property
    def lag(self) -> int | None:
        """Updates the best of what it holds is behind what serves; None: it holds nothing of the serving line."""
        return min((one.lag for one in self.held if one.is_right and one.lag is not None), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Want:
    """A checkpoint that engines should hold, and those that do."""

    wanted: Wanted
    engines: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The engine on the home's own socket, the only one that the gateway asks."""

    name: str | None  # as it reports; None: it said nothing, and `problem` says why
    problem: str = ""


def asked_by_gateway() -> Asked:
    """Ask it who it is. Never raises for one that is away."""
    try:
        return Asked(name=asyncio.run(_name()))
    except TimeoutError:
        return Asked(name=None, problem=f"it did not answer within {ANSWER_WITHIN_S:.0f} s")
    except EngineUnavailable:
        return Asked(name=None, problem="no engine answers there")
    except EngineError as error:
        return Asked(name=None, problem=error.message)


async def _name() -> str:
    async with asyncio.timeout(ANSWER_WITHIN_S), EngineClient(settings.HOME.engine_socket) as engine:
        return (await engine.info()).name


def engines() -> list[Engine]:
    """By name. What an engine said more than ten minutes ago counts no more, and is shown as silent."""
    roles, lags = _roles(), _lags()
    found: dict[str, Engine] = {}
    for report in EngineReport.objects.order_by("engine"):
        found[report.engine] = Engine(name=report.engine, report=report)
    for holding in EngineHolding.objects.select_related("checkpoint__policy").order_by(
        "engine", "checkpoint__policy__name", "-checkpoint__version"
    ):
        engine = found.setdefault(holding.engine, Engine(name=holding.engine))
        engine.held.append(
            Held(
                holding=holding,
                lag=lags.get(holding.checkpoint_id),
                role=roles.get(holding.checkpoint_id),
            )
        )
    return [found[name] for name in sorted(found)]


def wants() -> list[Want]:
    """What the policies of the project need held now."""
    held: dict[UUID, list[str]] = {}
    since = timezone.now() - REPORT_HOLDS_FOR
    for one in EngineHolding.objects.filter(error="", reported_at__gt=since).select_related("checkpoint"):
        if one.tree_digest == one.checkpoint.tree_digest:
            held.setdefault(one.checkpoint_id, []).append(one.engine)
    return [
        Want(wanted=wanted, engines=sorted(held.get(wanted.checkpoint.id, [])))
        for policy in Policy.objects.order_by("name")
        for wanted in wanted_checkpoints(policy.id)
    ]


def processes() -> list[ProcessBeat]:
    """Those that say they live: trainers, workers."""
    return list(ProcessBeat.objects.order_by("kind", "name")[:50])


def _roles() -> dict[UUID, str]:
    return {
        wanted.checkpoint.id: wanted.role
        for policy in Policy.objects.order_by("name")
        for wanted in wanted_checkpoints(policy.id)
    }


def _lags() -> dict[UUID, int]:
    found: dict[UUID, int] = {}
    for deployment in Deployment.objects.filter(alias="default").select_related("checkpoint"):
        line: list[Checkpoint] = lineage(deployment.checkpoint)
        found |= {checkpoint.id: place for place, checkpoint in enumerate(line)}
    return found
