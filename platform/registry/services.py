"""Verbs on what every room refers to: projects, keys, policies, checkpoints, deployments and the audit trail.

All but `create_project` and `find_project` run inside `with tenant(project_id):`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Max
from django.utils import timezone

from registry import auth, browser_keys
from registry.errors import Conflict, InvalidInput, NotFound
from registry.ids import new_uuid
from registry.models import (
    ApiKey,
    AuditEvent,
    Checkpoint,
    CheckpointState,
    Deployment,
    Member,
    Policy,
    Project,
    Role,
    Scope,
)
from registry.project_settings import ProjectSettings
from registry.tenancy import directory, tenant

LOOP = "strop"  # the actor when nobody asked: the loop itself
MAX_KEY_LIFE = timedelta(days=36_525)


def audit(
    verb: str,
    object_kind: str,
    object_id: object,
    *,
    actor: str,
    before: Any = None,
    after: Any = None,
    reason: str = "",
) -> AuditEvent:
    return AuditEvent.objects.create(
        verb=verb,
        object_kind=object_kind,
        object_id=str(object_id),
        actor=actor,
        before=before,
        after=after,
        reason=reason,
    )


def create_project(slug: str, name: str, *, owner: AbstractBaseUser | None = None, **settings: float) -> Project:
    """A new tenant; `settings` are fields of ProjectSettings."""
    ProjectSettings.of(settings)
    project_id = new_uuid()
    with tenant(project_id):
        project = Project.objects.create(id=project_id, slug=slug, name=name, settings=settings)
        if owner is not None:
            Member.objects.create(user=owner, role=Role.OWNER)
        audit("create", "project", slug, actor=LOOP if owner is None else owner.get_username(), after=settings)
    return project


def find_project(slug: str) -> Project:
    """Raises NotFound."""
    with directory():
        project = Project.objects.filter(slug=slug).first()
    if project is None:
        raise NotFound(f"no project {slug!r}", field="project")
    return project


def all_projects() -> list[Project]:
    with directory():
        return list(Project.objects.order_by("created_at"))


def project_settings(project_id: UUID) -> ProjectSettings:
    return ProjectSettings.of(Project.objects.values_list("settings", flat=True).get(id=project_id))


def locked_settings(project: Project) -> ProjectSettings:
    """As they are by now; nobody else changes them before the transaction around this ends."""
    return ProjectSettings.of(Project.objects.select_for_update(no_key=True).get(pk=project.pk).settings)


def change_project_settings(project: Project, *, actor: str, **changes: float | str) -> ProjectSettings:
    """Change these and leave the others as they are by now, whenever `project` was read."""
    before = Project.objects.select_for_update(no_key=True).get(pk=project.pk).settings
    new = ProjectSettings.of(before | changes)
    audit("change", "project settings", project.slug, actor=actor, before=before, after=new.to_json())
    project.settings = new.to_json()
    project.save(update_fields=["settings"])
    return new


def create_key(
    name: str,
    scopes: list[str],
    *,
    actor: str,
    expires_at: datetime | None = None,
    created_by: AbstractBaseUser | None = None,
    origins: Sequence[str] = (),
    items_per_minute: int | None = None,
) -> tuple[str, ApiKey]:
    """(the key's text, which is shown this once, its row). Raises InvalidInput for an unknown or no scope.

    With `origins` it is a browser key: it lies open in a page, so it may send signals from these sites, no more.
    """
    name = name.strip()
    if not 0 < len(name) <= 120:
        raise InvalidInput("give a name of at most 120 characters", field="name")
    wrong = [scope for scope in scopes if scope not in Scope.values]
    if wrong or not scopes:
        raise InvalidInput(f"found {wrong or 'none'}; choose from {', '.join(Scope.values)}", field="scopes")
    if expires_at is not None:
        _check_expiry(expires_at)
    if origins:
        browser_keys.check(scopes, origins, items_per_minute)
    elif items_per_minute is not None:
        browser_keys.check_rate(items_per_minute)
    text, prefix, digest = auth.new_key_text()
    key = ApiKey.objects.create(
        name=name,
        prefix=prefix,
        digest=digest,
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        created_by=created_by,
        origins=sorted(set(origins)),
        items_per_minute=items_per_minute,
    )
    after = {"name": name, "scopes": key.scopes} | ({"origins": key.origins} if origins else {})
    audit("create", "key", prefix, actor=actor, after=after)
    return text, key


def _check_expiry(at: datetime) -> None:
    if timezone.is_naive(at):
        raise InvalidInput("write the time with its zone, e.g. 2026-11-30T06:00:00Z", field="expires_at")
    if at <= timezone.now():
        raise InvalidInput("lies in the past", field="expires_at")
    if at > timezone.now() + MAX_KEY_LIFE:
        raise InvalidInput("lies more than 100 years ahead; a key without it never expires", field="expires_at")


def revoke_key(prefix: str, *, actor: str, reason: str = "") -> ApiKey:
    key = ApiKey.objects.filter(prefix=prefix).first()
    if key is None:
        raise NotFound(f"no key {prefix!r}", field="prefix")
    if key.revoked_at is None:
        key.revoked_at = timezone.now()
        key.save(update_fields=["revoked_at"])
        auth.forget_key(prefix)
        audit("revoke", "key", prefix, actor=actor, reason=reason)
    return key


def create_policy(name: str, *, source: str, actor: str, description: str = "") -> Policy:
    if Policy.objects.filter(name=name).exists():
        raise Conflict(f"policy {name!r} exists in this project; choose another name", field="name")
    policy = Policy.objects.create(name=name, source=source, description=description)
    audit("create", "policy", name, actor=actor, after={"source": source})
    return policy


def find_policy(name: str) -> Policy:
    policy = Policy.objects.filter(name=name).first()
    if policy is None:
        raise NotFound(f"no policy {name!r} in this project", field="policy")
    return policy


def parse_checkpoint_name(text: str) -> tuple[str, int]:
    """`editor@3` -> ("editor", 3). Raises InvalidInput."""
    name, at, version = text.rpartition("@")
    if not (at and name and version.isascii() and version.isdigit()):
        raise InvalidInput(f"found {text!r}; write <policy>@<version>, e.g. editor@3", field="checkpoint")
    return name, int(version)


def find_checkpoint(text: str) -> Checkpoint:
    name, version = parse_checkpoint_name(text)
    checkpoint = (
        Checkpoint.objects.select_related("policy", "parent").filter(policy__name=name, version=version).first()
    )
    if checkpoint is None:
        raise NotFound(f"no checkpoint {text!r} in this project", field="checkpoint")
    return checkpoint


def next_version(policy: Policy) -> int:
    """One above every version ever registered; callers that reserve versions take the larger of both."""
    return (policy.checkpoints.aggregate(last=Max("version"))["last"] or 0) + 1


def register_checkpoint(
    policy: Policy,
    *,
    version: int,
    parent: Checkpoint | None,
    tree_digest: str,
    folder: str,
    num_bytes: int,
    optimizer_step: int,
    actor: str,
    update_run_id: UUID | None = None,
    state: str = CheckpointState.CANDIDATE,
) -> Checkpoint:
    """The row that makes a verified folder a checkpoint. The same UpdateRun registering again gets the same row."""
    if update_run_id is not None:
        existing = Checkpoint.objects.filter(update_run_id=update_run_id).first()
        if existing is not None:
            return existing
    checkpoint = Checkpoint.objects.create(
        policy=policy,
        version=version,
        parent=parent,
        state=state,
        tree_digest=tree_digest,
        folder=folder,
        num_bytes=num_bytes,
        optimizer_step=optimizer_step,
        update_run_id=update_run_id,
    )
    audit("register", "checkpoint", checkpoint, actor=actor, after={"tree_digest": tree_digest, "state": state})
    return checkpoint


def serving_checkpoint(policy: Policy, alias: str = "default") -> Checkpoint:
    """Raises NotFound when the alias points nowhere yet."""
    deployment = Deployment.objects.select_related("checkpoint__policy").filter(policy=policy, alias=alias).first()
    if deployment is None:
        raise NotFound(f"policy {policy.name!r} serves nothing yet", field="policy")
    return deployment.checkpoint


def lineage(checkpoint: Checkpoint) -> list[Checkpoint]:
    """The checkpoint and its ancestors, newest first, in one query."""
    return list(
        Checkpoint.objects.raw(
            """
            WITH RECURSIVE line AS (
              SELECT * FROM registry_checkpoint WHERE id = %s
              UNION ALL
              SELECT parent.* FROM registry_checkpoint parent JOIN line ON parent.id = line.parent_id)
            SELECT * FROM line ORDER BY version DESC
            """,
            [checkpoint.id],
        )
    )
