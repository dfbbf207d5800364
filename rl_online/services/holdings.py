"""Which weights engines should hold, and which they say they hold.

An engine is told uuids, versions and digests, nothing about tenants. Not here: the bytes (api.weights).
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from evals.models import EvalRun, EvalState
from registry.errors import NotFound
from registry.models import Checkpoint, Deployment, Policy
from registry.services import all_projects
from registry.tenancy import tenant
from rl_online.models import EngineHolding, LearningPlan, UpdateRun, UpdateState
from rl_online.services.plans import deltas_folder

REPORT_HOLDS_FOR = timedelta(minutes=10)  # an engine reports each 20 s (serving.puller), unless it is loading


@dataclass(frozen=True, kw_only=True)
class Wanted:
    checkpoint: Checkpoint
    role: str  # serving | previous | canary | candidate | base | measured


@dataclass(frozen=True, kw_only=True)
class Head:
    """What engines should hold of one policy; `etag` changes whenever it does."""

    policy_id: UUID
    etag: str
    want: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {"etag": self.etag, "policy": str(self.policy_id), "want": self.want}


def served_policies(project_id: UUID | None = None) -> list[str]:
    """Ids of the policies that serve something, of one project or of all."""
    found: list[str] = []
    for one in [project_id] if project_id else [project.id for project in all_projects()]:
        with tenant(one):
            ids = Deployment.objects.filter(alias="default").order_by("policy_id").values_list("policy_id", flat=True)
            found.extend(str(policy_id) for policy_id in ids)
    return found


@lru_cache(maxsize=1024)
def project_of(policy_id: UUID) -> UUID:
    """The project a policy belongs to, for callers that name only the policy. Raises NotFound."""
    for project in all_projects():
        with tenant(project.id):
            if Policy.objects.filter(id=policy_id).exists():
                return project.id
    raise NotFound(f"no policy {policy_id}", field="policy")


def head(policy_id: UUID) -> Head:
    """What serves (before it is loaded, its predecessor too), canary, newest candidate, the first under a gate, and one
    that a benchmark run waits for."""
    want = [_row(wanted) for wanted in wanted_checkpoints(policy_id)]
    etag = hashlib.sha256(json.dumps(want, sort_keys=True).encode()).hexdigest()[:24]
    return Head(policy_id=policy_id, etag=etag, want=want)


MARK_SQL = """
SELECT d.fence, d.checkpoint_id, d.previous_id, d.canary_id,
       (SELECT max(reported_at) FROM rl_online_engineholding h WHERE h.checkpoint_id = d.checkpoint_id),
       (SELECT string_agg(u.id || u.state, ' ' ORDER BY u.version) FROM rl_online_updaterun u
        WHERE u.policy_id = d.policy_id AND u.state IN ('proving', 'waiting')),
       (SELECT p.gate_benchmark IS NOT NULL FROM rl_online_learningplan p WHERE p.policy_id = d.policy_id),
       (SELECT string_agg(e.id::text, ' ' ORDER BY e.started_at) FROM evals_evalrun e
        WHERE e.project_id = d.project_id AND e.state = 'running' AND e.asked_by <> '')
FROM registry_deployment d WHERE d.policy_id = %s AND d.alias = 'default'
"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A head, and what it rested on."""

    head: Head
    mark: tuple[Any, ...] | None


def look(policy_id: UUID, known: Look | None) -> Look:
    """The head, for whoever asks again and again: one small query where nothing has moved since `known`."""
    with connection.cursor() as cursor:
        cursor.execute(MARK_SQL, [policy_id])
        mark = cursor.fetchone()
    return known if known is not None and known.mark == mark else Look(head=head(policy_id), mark=mark)


def wanted_checkpoints(policy_id: UUID) -> list[Wanted]:
    """Inside a tenant. Each checkpoint once, under its most important role."""
    deployment = (
        Deployment.objects.select_related("checkpoint__parent", "canary__parent", "previous__parent")
        .filter(policy_id=policy_id, alias="default")
        .first()
    )
    if deployment is None:
        return []
    found = [Wanted(checkpoint=deployment.checkpoint, role="serving")]
    if deployment.previous is not None and not is_held(deployment.checkpoint):
        found.append(Wanted(checkpoint=deployment.previous, role="previous"))
    if deployment.canary is not None:
        found.append(Wanted(checkpoint=deployment.canary, role="canary"))
    proving = (
        UpdateRun.objects.select_related("checkpoint__parent")
        .filter(policy_id=policy_id, state__in=[UpdateState.PROVING, UpdateState.WAITING], checkpoint__isnull=False)
        .order_by("-version")
        .first()
    )
    if proving is not None and proving.checkpoint is not None:
        found.append(Wanted(checkpoint=proving.checkpoint, role="candidate"))
    # The gate compares with the first checkpoint and the judge is made of it: loading it anew each time takes longer.
    if LearningPlan.objects.filter(policy_id=policy_id, gate_benchmark__isnull=False).exists():
        found.append(Wanted(checkpoint=first_checkpoint(policy_id), role="base"))
    if (measured := _measured(policy_id, but={one.checkpoint.id for one in found})) is not None:
        found.append(Wanted(checkpoint=measured, role="measured"))
    seen: set[UUID] = set()
    return [one for one in found if not (one.checkpoint.id in seen or seen.add(one.checkpoint.id))]  # type: ignore[func-returns-value]


def _measured(policy_id: UUID, *, but: Collection[UUID]) -> Checkpoint | None:
    """Of the oldest benchmark run whose checkpoint is held for nothing else: one at a time, for memory's sake."""
    names = EvalRun.objects.filter(state=EvalState.RUNNING).exclude(asked_by="").order_by("started_at", "id")
    checkpoints = Checkpoint.objects.select_related("policy", "parent").filter(
        policy_id=policy_id, files_deleted_at__isnull=True
    )
    for name in names.values_list("checkpoint", flat=True):
        policy, _, version = (name or "").rpartition("@")
        found = checkpoints.filter(policy__name=policy, version=int(version)).first() if version.isdigit() else None
        if found is not None and found.id not in but:
            return found
    return None


def first_checkpoint(policy_id: UUID) -> Checkpoint:
    return Checkpoint.objects.select_related("policy", "parent").filter(policy_id=policy_id).earliest("version")


def record_held(engine: str, policy_id: UUID, held: Sequence[dict[str, Any]], failed: Sequence[dict[str, Any]]) -> None:
    """What an engine reports; inside a tenant. Weights with another digest than the registered one are an error."""
    versions = {row["version"]: row["tree_digest"] for row in held}
    errors = {row["version"]: row["error"] for row in failed}
    EngineHolding.objects.filter(engine=engine, checkpoint__policy_id=policy_id).exclude(
        checkpoint__version__in=[*versions, *errors]
    ).delete()
    for checkpoint in Checkpoint.objects.filter(policy_id=policy_id, version__in=[*versions, *errors]):
        digest = versions.get(checkpoint.version, "")
        error = "" if digest else errors[checkpoint.version]
        if digest and digest != checkpoint.tree_digest:
            error = f"holds {digest}, registered is {checkpoint.tree_digest}"
        EngineHolding.objects.update_or_create(
            engine=engine, checkpoint=checkpoint, defaults={"tree_digest": digest, "error": error[:4000]}
        )


def is_held(checkpoint: Checkpoint) -> bool:
    """Whether some engine has said lately that it holds exactly these weights."""
    return EngineHolding.objects.filter(
        checkpoint=checkpoint,
        tree_digest=checkpoint.tree_digest,
        error="",
        reported_at__gt=timezone.now() - REPORT_HOLDS_FOR,
    ).exists()


def load_error(checkpoint: Checkpoint) -> str:
    """What an engine said when it could not load it; empty when none did."""
    errors = EngineHolding.objects.filter(checkpoint=checkpoint).exclude(error="").values_list("error", flat=True)
    return next(iter(errors), "")


def _row(wanted: Wanted) -> dict[str, Any]:
    checkpoint = wanted.checkpoint
    return {
        "version": checkpoint.version,
        "role": wanted.role,
        "tree_digest": checkpoint.tree_digest,
        "full": f"/v1/weights/objects/{checkpoint.policy_id}/v{checkpoint.version:06d}",
        "delta": _delta(checkpoint),
    }


def _delta(checkpoint: Checkpoint) -> dict[str, Any] | None:
    if checkpoint.parent is None:
        return None
    folder = deltas_folder(checkpoint.policy_id)
    name = f"{checkpoint.version:06d}-from-{checkpoint.parent.version:06d}"
    for path in sorted(folder.glob(f"{name}.*")):
        if path.suffix != ".json" and path.with_name(f"{path.name}.json").is_file():
            return {
                "from": checkpoint.parent.version,
                "path": f"/v1/weights/objects/{checkpoint.policy_id}/deltas/{path.name}",
                "size": path.stat().st_size,
            }
    return None
