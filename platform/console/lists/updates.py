"""The list of updates: what can be asked of it, how its rows are found and exported."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.query import Field, Fields, Kind, Term
from registry.errors import InvalidInput
from registry.services import parse_checkpoint_name
from rl_online.models import GateReport, UpdateKind, UpdateRun, UpdateState

DECISIONS = ("promote", "canary", "extend", "hold", "roll_back")
TRIGGERS = ("schedule", "person", "replay")


def _decided(term: Term) -> Q:
    if term.is_presence:
        return Q(decision__isnull=False)
    return Q(decision__in=term.values)


def _made_from(term: Term) -> Q:
    return _named(term, "parent")


def _makes(term: Term) -> Q:
    """By the version reserved for it: also a run that made no checkpoint."""
    found = Q()
    for value in term.values:
        name, version = _parsed(value)
        found |= Q(policy__name=name, version=version)
    return found if term.values else Q(checkpoint__isnull=False)


def _named(term: Term, column: str) -> Q:
    found = Q()
    for value in term.values:
        name, version = _parsed(value)
        found |= Q(**{f"{column}__policy__name": name, f"{column}__version": version})
    return found


def _parsed(value: str) -> tuple[str, int]:
    try:
        return parse_checkpoint_name(value)
    except InvalidInput:
        return "", -1  # names nothing, so it matches nothing


FIELDS = Fields(
    Field("state", choices=tuple(UpdateState.values), help="where the update stands"),
    Field("gate", choices=DECISIONS, build=_decided, help="what the gate said last"),
    Field("trigger", choices=TRIGGERS, help="who asked: the rhythm, a person, a replay"),
    Field("by", column="requested_by", help="the person who asked"),
    Field("policy", column="policy__name", help="name of the policy"),
    Field("checkpoint", build=_makes, help="the one it makes, policy@version"),
    Field("from", build=_made_from, help="the checkpoint it learnt from, policy@version"),
    Field("kind", choices=tuple(UpdateKind.values), help="which stage of training"),
    Field("loss", column="batch__kind", choices=("rl", "kto"), help="of online updates, by which loss"),
    Field("samples", column="batch__num_samples", kind=Kind.NUMBER, help="in its batch"),
    Field("reward", column="batch__reward_mean", kind=Kind.NUMBER, help="mean over its batch"),
    Field("error", help="has:error finds the failed ones"),
    search=lambda text: Q(error__icontains=text) | Q(batch__digest__startswith=text) | Q(requested_by=text),
)
COLUMNS = (
    Column(name="update", title="Update to"),
    Column(name="state", title="State"),
    Column(name="gate", title="Gate"),
    Column(name="from", title="From", is_default=False),
    Column(name="trigger", title="Trigger"),
    Column(name="kind", title="Kind"),
    Column(name="loss", title="Loss", is_default=False),
    Column(name="samples", title="Samples", is_number=True),
    Column(name="reward", title="Reward, mean", is_number=True),
    Column(name="rate", title="Tokens/s", is_number=True, hint="prompt and completion tokens trained, by the wall"),
    Column(name="took", title="Took", is_number=True, hint="from asking for it to its decision"),
    Column(name="started", title="Asked for"),
    Column(name="settings", title="Settings", is_default=False, hint="digest of the effective config"),
    Column(name="batch", title="Batch", is_default=False),
)
EXPORTED = (
    "update", "kind", "policy", "version", "state", "gate", "parent", "trigger", "requested_by", "loss", "samples",
    "tokens", "reward_mean", "batch", "config_digest", "config", "tokens_per_s", "timings", "created_at", "started_at",
    "finished_at", "error",
)  # fmt: skip
FACETS = (
    Counted(name="state", title="State", columns=("state",)),
    Counted(name="gate", title="Gate", columns=("decision",)),
    Counted(name="trigger", title="Trigger", columns=("trigger",)),
    Counted(name="policy", title="Policy", columns=("policy__name",)),
    Counted(name="kind", title="Kind", columns=("kind",)),
    Counted(name="loss", title="Loss", columns=("batch__kind",)),
)


def matching(asked: Asked) -> QuerySet[UpdateRun]:
    latest = GateReport.objects.filter(run=OuterRef("pk")).order_by("-created_at").values("decision")[:1]
    runs = UpdateRun.objects.annotate(decision=Subquery(latest), at=F("created_at"))
    found: QuerySet[UpdateRun] = runs.filter(asked.time_range.within("created_at"), asked.query.condition())
    return found


def find(asked: Asked) -> Found:
    return keyset_page(_loaded(matching(asked)), asked, at="created_at")


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="created_at")


def newest_update() -> datetime | None:
    return UpdateRun.objects.order_by("-created_at").values_list("created_at", flat=True).first()


def exported(asked: Asked) -> QuerySet[UpdateRun]:
    return _loaded(matching(asked))


def export_rows(runs: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            str(run.id), run.kind, run.policy.name, run.version, run.state, run.decision, str(run.parent), run.trigger,
            run.requested_by, run.batch.kind, run.batch.num_samples, run.batch.num_tokens, run.batch.reward_mean,
            run.batch.digest, run.config_digest, run.config, run.tokens_per_s, run.timings, run.created_at,
            run.started_at, run.finished_at, run.error or None,
        )
        for run in runs
    ]  # fmt: skip


def _loaded(runs: QuerySet[UpdateRun]) -> QuerySet[UpdateRun]:
    return runs.select_related("policy", "batch", "parent__policy", "checkpoint__policy")


UPDATES = ListKind(
    name="updates",
    noun="update",
    title="Updates",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_update,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=exported, values=export_rows, at="created_at"),
    rows_template="updates/_rows.html",
    empty_template="updates/_empty.html",
    default_range="30d",
    example='state:held,failed trigger:person samples:>300 "out of memory"',
)
