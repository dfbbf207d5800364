"""The loop through the API: policies, checkpoints, updates, gate reports and deployments."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from ninja import Body, Field, Query, Router, Schema, Status

from registry.errors import InvalidInput, NotFound
from registry.models import Checkpoint, Deployment, Policy
from registry.services import find_checkpoint, find_policy
from rl_online.models import GateReport, PolicyImport, UpdateRun
from rl_online.services.holdings import is_held
from rl_online.services.plans import PLAN_FIELDS, change_plan
from rl_online.services.policy_imports import request_import
from rl_online.services.promotion import promote, reject, roll_back
from rl_online.services.updates import cancel_update, trigger_update
from strop.api.access import READ, TRAIN, ApiRequest, in_project
from strop.api.paging import Asked, Page, page_of

router = Router(tags=["Loop"])


class PlanOut(Schema):
    every_turns: int
    every_minutes: int | None
    min_turns: int
    max_turns: int
    promotion: str
    is_paused: bool
    gate_benchmark: str | None
    gate_suites: list[dict[str, Any]] = Field(description="further benchmarks, each with its sampling")
    gate_judge_id: int | None = Field(description="null: the judge of the settings, or the first checkpoint")
    judged_pairs: int


class PolicyOut(Schema):
    name: str
    source: str
    description: str
    created_at: datetime
    serving: str | None = Field(description="<policy>@<version>; null before anything serves")
    plan: PlanOut | None = Field(description="null: it never learns")


class PolicyIn(Schema):
    name: str
    source: str = Field(description="`smollm2`, `owner/name[@revision]` of the hub, or the whole path of a folder")
    plan: dict[str, Any] = Field({}, description="fields of the learning plan that differ from the defaults")


class ImportOut(Schema):
    id: UUID
    name: str
    source: str
    state: str = Field(description="queued, storing, registered or failed")
    progress: str
    notes: list[str]
    error: str
    created_at: datetime
    finished_at: datetime | None


class CheckpointOut(Schema):
    name: str = Field(description="<policy>@<version>")
    policy: str
    version: int
    state: str = Field(description="candidate, canary, serving, retired or rejected")
    parent: str | None
    tree_digest: str
    num_bytes: int
    optimizer_step: int
    update: UUID | None
    created_at: datetime


class CheckpointDetail(CheckpointOut):
    is_held: bool = Field(description="whether an engine has said lately that it holds exactly these weights")


class UpdateOut(Schema):
    id: UUID
    kind: str = Field(description="online, sft, pairs, midtrain, reward_model, ppo or distill")
    options: dict[str, Any] = Field(description="by which its batch was sealed; empty for online")
    inputs: dict[str, Any] = Field(description="what its training needs beside the batch")
    policy: str
    version: int
    parent: str
    checkpoint: str | None
    state: str = Field(description="queued, training, proving, waiting, promoted, held, done, cancelled or failed")
    trigger: str
    requested_by: str
    batch: str = Field(description="digest")
    num_samples: int
    step: int
    num_steps: int | None
    error: str
    timings: dict[str, float]
    created_at: datetime
    finished_at: datetime | None


class UpdateIn(Schema):
    policy: str
    kind: str | None = Field(
        None, description="a stage (sft, pairs, ...), or of an online update rl or kto; null: whichever the turns allow"
    )
    options: dict[str, Any] = Field({}, description="of the stage: what is sealed, see docs/training.md")
    overrides: dict[str, Any] = Field({}, description="fields of the update's config for this update alone")


class GateOut(Schema):
    id: int
    checkpoint: str
    update: UUID | None
    decision: str = Field(description="promote, canary, extend, hold or roll_back")
    reasons: list[str]
    created_at: datetime


class GateDetail(GateOut):
    evidence: dict[str, Any]
    judge: dict[str, Any]


class DeploymentOut(Schema):
    policy: str
    alias: str
    checkpoint: str
    previous: str | None
    canary: str | None
    canary_share: float
    fence: int
    changed_at: datetime


class Reason(Schema):
    reason: str = Field("", max_length=2000, description="needed where the gate did not say so, and for a rollback")


class RollbackIn(Schema):
    reason: str = Field(max_length=2000)
    version: int | None = Field(None, description="a retired version; null: the predecessor")
    expected: str | None = Field(None, description="the checkpoint seen serving; 409 when another one is")


class OfPolicy(Asked):
    policy: str | None = None


@router.get("/policies", response=list[PolicyOut], auth=READ, summary="List policies")
@in_project
def policies(request: ApiRequest) -> list[dict[str, Any]]:
    return [_policy(one) for one in _policies().order_by("created_at")]


@router.post("/policies", response={202: ImportOut}, auth=TRAIN, summary="Make a policy of a model, in the background")
@in_project
def add_policy(request: ApiRequest, sent: PolicyIn) -> Status:
    return Status(202, request_import(sent.name, sent.source, actor=request.actor, plan=sent.plan))


@router.get("/policies/{name}", response=PolicyOut, auth=READ, summary="One policy")
@in_project
def policy(request: ApiRequest, name: str) -> dict[str, Any]:
    found = _policies().filter(name=name).first()
    if found is None:
        raise NotFound(f"no policy {name!r} in this project", field="policy")
    return _policy(found)


@router.patch("/policies/{name}/plan", response=PlanOut, auth=TRAIN, summary="Change when and how a policy learns")
@in_project
def plan(request: ApiRequest, name: str, sent: Body[dict[str, Any]]) -> Any:
    unknown = sorted(set(sent) - PLAN_FIELDS)
    if unknown:
        raise InvalidInput(f"unknown; known are {', '.join(sorted(PLAN_FIELDS))}", field=unknown[0])
    return change_plan(find_policy(name), actor=request.actor, **sent)


@router.post(
    "/policies/{name}/roll-back", response=DeploymentOut, auth=TRAIN, summary="Serve an earlier checkpoint again"
)
@in_project
def roll_back_policy(request: ApiRequest, name: str, sent: RollbackIn) -> dict[str, Any]:
    expected = find_checkpoint(sent.expected) if sent.expected else None
    moved = roll_back(
        find_policy(name), actor=request.actor, reason=sent.reason, version=sent.version, expected=expected
    )
    return _deployment(_deployments().get(pk=moved.pk))


@router.get("/imports/{id}", response=ImportOut, auth=READ, summary="How far a new policy is")
@in_project
def policy_import(request: ApiRequest, id: UUID) -> PolicyImport:
    found = PolicyImport.objects.filter(id=id).first()
    if found is None:
        raise NotFound("no such import in this project", field="id")
    return found


@router.get("/checkpoints", response=Page[CheckpointOut], auth=READ, summary="List checkpoints, newest first")
@in_project
def checkpoints(request: ApiRequest, asked: Query[OfPolicy]) -> dict[str, Any]:
    rows = Checkpoint.objects.select_related("policy", "parent__policy")
    rows = rows.filter(policy__name=asked.policy) if asked.policy else rows
    return page_of(rows, asked, at="created_at", show=_checkpoint)


@router.get("/checkpoints/{name}", response=CheckpointDetail, auth=READ, summary="One checkpoint")
@in_project
def checkpoint(request: ApiRequest, name: str) -> dict[str, Any]:
    found = find_checkpoint(name)
    return _checkpoint(found) | {"is_held": is_held(found)}


@router.post("/checkpoints/{name}/promote", response=DeploymentOut, auth=TRAIN, summary="Let a candidate serve")
@in_project
def promote_checkpoint(request: ApiRequest, name: str, sent: Reason) -> dict[str, Any]:
    moved = promote(find_checkpoint(name), actor=request.actor, reason=sent.reason)
    return _deployment(_deployments().get(pk=moved.pk))


@router.post("/checkpoints/{name}/reject", response=CheckpointOut, auth=TRAIN, summary="Never let a candidate serve")
@in_project
def reject_checkpoint(request: ApiRequest, name: str, sent: Reason) -> dict[str, Any]:
    reject(find_checkpoint(name), actor=request.actor, reason=sent.reason)
    return _checkpoint(find_checkpoint(name))


@router.get("/updates", response=Page[UpdateOut], auth=READ, summary="List updates, newest first")
@in_project
def updates(request: ApiRequest, asked: Query[OfPolicy]) -> dict[str, Any]:
    rows = _updates().filter(policy__name=asked.policy) if asked.policy else _updates()
    return page_of(rows, asked, at="created_at", show=_update)


@router.post("/updates", response={201: UpdateOut}, auth=TRAIN, summary="Start an update now")
@in_project
def start_update(request: ApiRequest, sent: UpdateIn) -> Status:
    run = trigger_update(
        find_policy(sent.policy),
        actor=request.actor,
        overrides=sent.overrides,
        kind=sent.kind,
        options=sent.options,
    )
    return Status(201, _update(_find_update(run.id)))


@router.get("/updates/{id}", response=UpdateOut, auth=READ, summary="One update")
@in_project
def update(request: ApiRequest, id: UUID) -> dict[str, Any]:
    return _update(_find_update(id))


@router.post("/updates/{id}/cancel", response=UpdateOut, auth=TRAIN, summary="Stop an update at its next step")
@in_project
def cancel(request: ApiRequest, id: UUID, sent: Reason) -> dict[str, Any]:
    cancel_update(_find_update(id), actor=request.actor, reason=sent.reason)
    return _update(_find_update(id))


@router.get("/gates", response=Page[GateOut], auth=READ, summary="List gate reports, newest first")
@in_project
def gates(request: ApiRequest, asked: Query[OfPolicy]) -> dict[str, Any]:
    rows = GateReport.objects.select_related("checkpoint__policy")
    rows = rows.filter(checkpoint__policy__name=asked.policy) if asked.policy else rows
    return page_of(rows, asked, at="created_at", show=_gate)


@router.get("/gates/{id}", response=GateDetail, auth=READ, summary="One gate report with its evidence")
@in_project
def gate(request: ApiRequest, id: int) -> dict[str, Any]:
    found = GateReport.objects.select_related("checkpoint__policy").filter(pk=id).first()
    if found is None:
        raise NotFound("no such gate report in this project", field="id")
    return _gate(found) | {"evidence": found.evidence, "judge": found.judge}


@router.get("/deployments", response=list[DeploymentOut], auth=READ, summary="What serves")
@in_project
def deployments(request: ApiRequest) -> list[dict[str, Any]]:
    return [_deployment(one) for one in _deployments().order_by("policy__name", "alias")]


def _policies() -> QuerySet[Policy]:
    return Policy.objects.select_related("plan").prefetch_related("deployments__checkpoint__policy")


def _deployments() -> QuerySet[Deployment]:
    return Deployment.objects.select_related("policy", "checkpoint__policy", "previous__policy", "canary__policy")


def _updates() -> QuerySet[UpdateRun]:
    return UpdateRun.objects.select_related("policy", "batch", "parent__policy", "checkpoint__policy")


def _find_update(id: UUID) -> UpdateRun:
    found = _updates().filter(id=id).first()
    if found is None:
        raise NotFound("no such update in this project", field="id")
    return found


def _policy(row: Policy) -> dict[str, Any]:
    serving = next((str(one.checkpoint) for one in row.deployments.all() if one.alias == "default"), None)
    return {
        "name": row.name,
        "source": row.source,
        "description": row.description,
        "created_at": row.created_at,
        "serving": serving,
        "plan": getattr(row, "plan", None),
    }


def _checkpoint(row: Checkpoint) -> dict[str, Any]:
    return {
        "name": str(row),
        "policy": row.policy.name,
        "version": row.version,
        "state": row.state,
        "parent": None if row.parent is None else f"{row.policy.name}@{row.parent.version}",
        "tree_digest": row.tree_digest,
        "num_bytes": row.num_bytes,
        "optimizer_step": row.optimizer_step,
        "update": row.update_run_id,
        "created_at": row.created_at,
    }


def _update(row: UpdateRun) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "options": row.options,
        "inputs": row.inputs,
        "policy": row.policy.name,
        "version": row.version,
        "parent": str(row.parent),
        "checkpoint": None if row.checkpoint is None else str(row.checkpoint),
        "state": row.state,
        "trigger": row.trigger,
        "requested_by": row.requested_by,
        "batch": row.batch.digest,
        "num_samples": row.batch.num_samples,
        "step": row.step,
        "num_steps": row.num_steps,
        "error": row.error,
        "timings": row.timings,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
    }


def _gate(row: GateReport) -> dict[str, Any]:
    return {
        "id": row.pk,
        "checkpoint": str(row.checkpoint),
        "update": row.run_id,
        "decision": row.decision,
        "reasons": row.reasons,
        "created_at": row.created_at,
    }


def _deployment(row: Deployment) -> dict[str, Any]:
    return {
        "policy": row.policy.name,
        "alias": row.alias,
        "checkpoint": str(row.checkpoint),
        "previous": None if row.previous is None else str(row.previous),
        "canary": None if row.canary is None else str(row.canary),
        "canary_share": row.canary_share,
        "fence": row.fence,
        "changed_at": row.changed_at,
    }
