"""The project itself through the API: its settings, keys and webhooks."""

from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Body, Field, Query, Router, Schema, Status

from registry import channels, webhooks
from registry.errors import NotFound
from registry.models import ApiKey, ChannelKind, NoticeDelivery, NotificationChannel, Project
from registry.project_settings import ProjectSettings
from registry.services import change_project_settings, create_key, project_settings, revoke_key
from strop.api.access import ADMIN, READ, ApiRequest, in_project
from strop.api.paging import Asked, Page, page_of

router = Router(tags=["Project"])


class ProjectOut(Schema):
    id: UUID
    slug: str
    name: str
    created_at: datetime


class ProjectDetail(ProjectOut):
    settings: dict[str, Any]


class KeyOut(Schema):
    prefix: str
    name: str
    scopes: list[str]
    origins: list[str] = Field(description="not empty: a browser key, for these sites")
    items_per_minute: int | None
    is_live: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class KeyMade(KeyOut):
    key: str = Field(description="the whole key, told this once")


class KeyIn(Schema):
    name: str
    scopes: list[str] = Field(description="of ingest, read, infer, train, admin; a browser key has ingest alone")
    expires_at: datetime | None = None
    origins: list[str] = []
    items_per_minute: int | None = None


class WebhookOut(Schema):
    id: UUID
    name: str
    url: str
    events: list[str]
    is_enabled: bool
    disabled_reason: str
    num_failures_in_row: int
    created_at: datetime


class WebhookMade(WebhookOut):
    secret: str = Field(description="what its messages are signed with")


class WebhookIn(Schema):
    name: str
    url: str
    events: list[str]


class WebhookChange(Schema):
    url: str | None = None
    events: list[str] | None = None
    is_enabled: bool | None = None


class DeliveryOut(Schema):
    id: int
    event: str
    title: str
    state: str = Field(description="waiting, sent or given_up")
    attempts: list[dict[str, Any]]
    next_at: datetime | None
    sent_at: datetime | None
    created_at: datetime


@router.get("/projects", response=list[ProjectOut], auth=READ, summary="The project of this key")
@in_project
def projects(request: ApiRequest) -> list[Project]:
    return [Project.objects.get(id=request.project_id)]


@router.get("/projects/{slug}", response=ProjectDetail, auth=READ, summary="A project with its settings")
@in_project
def project(request: ApiRequest, slug: str) -> dict[str, Any]:
    return _project(_own(request, slug))


@router.patch("/projects/{slug}", response=ProjectDetail, auth=ADMIN, summary="Change settings of a project")
@in_project
def change_project(request: ApiRequest, slug: str, sent: Body[dict[str, Any]]) -> dict[str, Any]:
    found = _own(request, slug)
    ProjectSettings.of(sent)
    change_project_settings(found, actor=request.actor, **sent)
    return _project(found)


@router.get("/keys", response=list[KeyOut], auth=ADMIN, summary="List keys, newest first")
@in_project
def keys(request: ApiRequest) -> list[ApiKey]:
    return list(ApiKey.objects.order_by("-created_at")[:500])


@router.post("/keys", response={201: KeyMade}, auth=ADMIN, summary="Make a key")
@in_project
def make_key(request: ApiRequest, sent: KeyIn) -> Status:
    text, key = create_key(
        sent.name,
        sent.scopes,
        actor=request.actor,
        expires_at=sent.expires_at,
        origins=sent.origins,
        items_per_minute=sent.items_per_minute,
    )
    return Status(201, KeyOut.from_orm(key).dict() | {"key": text})


@router.delete("/keys/{prefix}", response=KeyOut, auth=ADMIN, summary="Revoke a key")
@in_project
def delete_key(request: ApiRequest, prefix: str) -> ApiKey:
    return revoke_key(prefix, actor=request.actor)


@router.get("/webhooks", response=list[WebhookOut], auth=ADMIN, summary="List webhooks")
@in_project
def list_webhooks(request: ApiRequest) -> list[dict[str, Any]]:
    return [_webhook(one) for one in channels.channels() if one.kind == ChannelKind.WEBHOOK]


@router.post("/webhooks", response={201: WebhookMade}, auth=ADMIN, summary="Make a webhook")
@in_project
def make_webhook(request: ApiRequest, sent: WebhookIn) -> Status:
    made = channels.create_channel(sent.name, ChannelKind.WEBHOOK, sent.url, sent.events, actor=request.actor)
    return Status(201, _webhook(made) | {"secret": webhooks.secret_of(made)})


@router.patch("/webhooks/{id}", response=WebhookOut, auth=ADMIN, summary="Change a webhook, or switch it on or off")
@in_project
def change_webhook(request: ApiRequest, id: UUID, sent: WebhookChange) -> dict[str, Any]:
    _find(id)
    changed = channels.change_channel(
        id, actor=request.actor, target=sent.url, events=sent.events, is_enabled=sent.is_enabled
    )
    return _webhook(changed)


@router.delete("/webhooks/{id}", response={204: None}, auth=ADMIN, summary="Remove a webhook and its log")
@in_project
def delete_webhook(request: ApiRequest, id: UUID) -> Status:
    _find(id)
    channels.remove_channel(id, actor=request.actor)
    return Status(204, None)


@router.post("/webhooks/{id}/test", response={202: DeliveryOut}, auth=ADMIN, summary="Send a test to a webhook")
@in_project
def test_webhook(request: ApiRequest, id: UUID) -> Status:
    _find(id)
    return Status(202, _delivery(channels.send_test(id, actor=request.actor)))


@router.get("/webhooks/{id}/deliveries", response=Page[DeliveryOut], auth=ADMIN, summary="What became of its notices")
@in_project
def deliveries(request: ApiRequest, id: UUID, asked: Query[Asked]) -> dict[str, Any]:
    rows = NoticeDelivery.objects.filter(channel=_find(id)).select_related("notice")
    return page_of(rows, asked, at="created_at", show=_delivery)


def _own(request: ApiRequest, slug: str) -> Project:
    """A key sees its own project; another one's name is not found."""
    found = Project.objects.get(id=request.project_id)
    if found.slug != slug:
        raise NotFound(f"no project {slug!r} for this key", field="slug")
    return found


def _project(row: Project) -> dict[str, Any]:
    settings: ProjectSettings = project_settings(row.id)
    return ProjectOut.from_orm(row).dict() | {"settings": settings.to_json()}


def _find(id: UUID) -> NotificationChannel:
    found = channels.find_channel(id)
    if found.kind != ChannelKind.WEBHOOK:
        raise NotFound("no such webhook in this project", field="id")
    return found


def _webhook(row: NotificationChannel) -> dict[str, Any]:
    names = ("id", "name", "events", "is_enabled", "disabled_reason", "num_failures_in_row", "created_at")
    return {"url": row.target} | {name: getattr(row, name) for name in names}


def _delivery(row: NoticeDelivery) -> dict[str, Any]:
    names = ("id", "state", "attempts", "next_at", "sent_at", "created_at")
    title = str(row.notice.payload.get("title", ""))
    return {"event": row.notice.kind, "title": title} | {name: getattr(row, name) for name in names}
