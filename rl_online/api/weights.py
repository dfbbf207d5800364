"""Weights for engines: what to hold (long poll), the files themselves, and what is held.

Open to the product's own processes; keys with scope `infer` may read for their own project, but what is held decides
who answers and only the product's own engines say it. Only files that a manifest lists are given out, so optimizer
state never leaves.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from registry.auth import authenticate
from registry.errors import Forbidden, InvalidInput, NotFound, StropError
from registry.internal_token import Purpose
from registry.models import Scope
from registry.tenancy import tenant
from rl_online.api.threads import in_thread
from rl_online.services import engines, holdings
from rl_online.services.plans import deltas_folder
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import MANIFEST, read_manifest

MAX_WAIT_S = 60.0
POLL_EVERY_S = 0.5
CHUNK_BYTES = 1 << 20
VERSION_FOLDER = re.compile(r"v[0-9]{6,}")
DELTA_NAME = re.compile(r"[0-9]{6,}-from-[0-9]{6,}\.[a-z0-9]+(\.json)?")

View = Callable[..., Awaitable[HttpResponse | StreamingHttpResponse]]


class HeldRow(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    tree_digest: str


class FailedRow(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    error: str


Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Small = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class About(msgspec.Struct, forbid_unknown_fields=True):
    """What an engine says of itself; counters run since it started. What an adapter does not know it leaves out."""

    code_version: Annotated[str, msgspec.Meta(max_length=60)] = ""
    adapter: Annotated[str, msgspec.Meta(max_length=40)] = ""
    device: Annotated[str, msgspec.Meta(max_length=100)] = ""
    host: Annotated[str, msgspec.Meta(max_length=200)] = ""
    pid: Small | None = None
    threads: Small | None = None
    max_batch: Small | None = None
    max_waiting: Small | None = None
    running: Small | None = None
    waiting: Small | None = None
    uptime_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    tokens_generated: Count | None = None
    requests_refused: Count | None = None
    loads: Small | None = None
    load_failures: Small | None = None


class HeldReport(msgspec.Struct, forbid_unknown_fields=True):
    engine: str
    policy: UUID
    held: list[HeldRow]
    failed: list[FailedRow] = []
    about: About | None = None


def answered(view: View) -> View:
    """What is wrong becomes `{"error": {...}}` with its status."""

    @wraps(view)
    async def call(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse | StreamingHttpResponse:
        try:
            return await view(request, *args, **kwargs)
        except StropError as error:
            body = {"code": error.code, "message": error.message, "field": error.field}
            request_id = getattr(request, "request_id", None)
            return JsonResponse({"error": body | {"request_id": request_id}}, status=error.status)

    return call


@require_GET
@answered
async def policies(request: HttpRequest) -> HttpResponse:
    def find() -> list[str]:
        return holdings.served_policies(authenticate(request, Scope.INFER).project_id)

    return JsonResponse({"policies": await in_thread(find)})


@require_GET
@answered
async def head(request: HttpRequest) -> HttpResponse:
    """What to hold of `policy`; with `after`, waits up to `wait` seconds until it is something else."""
    policy_id = _uuid(request.GET.get("policy", ""), "policy")
    after = request.GET.get("after", "")
    deadline = time.monotonic() + _seconds(request.GET.get("wait", "0"))
    project_id = await in_thread(_authorised, request, policy_id)

    def look(known: holdings.Look | None) -> holdings.Look:
        with tenant(project_id):
            return holdings.look(policy_id, known)

    found = None
    while True:
        found = await in_thread(look, found)
        if found.head.etag != after or time.monotonic() >= deadline:
            return JsonResponse(found.head.to_json())
        await asyncio.sleep(POLL_EVERY_S)


@require_GET
@answered
async def objects(request: HttpRequest, policy: UUID, path: str) -> StreamingHttpResponse:
    """One file of a checkpoint folder or one delta object."""
    await in_thread(_authorised, request, policy)
    file = await in_thread(_file, policy, path)
    response = StreamingHttpResponse(_read(file), content_type="application/octet-stream")
    response["content-length"] = str(file.stat().st_size)
    return response


@csrf_exempt
@require_POST
@answered
async def held(request: HttpRequest) -> HttpResponse:
    try:
        report = msgspec.json.decode(request.body, type=HeldReport)
    except msgspec.MsgspecError as error:
        reason, _, field = str(error).partition(" - at ")
        raise InvalidInput(reason, field=field.strip("`").removeprefix("$.") or None) from None

    def record() -> None:
        if authenticate(request, Scope.INFER).purpose is not Purpose.WEIGHTS:
            raise Forbidden("only Strop's own engines report what they hold")
        with tenant(_authorised(request, report.policy)):
            engines.record_report(
                report.engine[:100],
                report.policy,
                held=[msgspec.structs.asdict(row) for row in report.held],
                failed=[msgspec.structs.asdict(row) for row in report.failed],
                about=msgspec.structs.asdict(report.about) if report.about else None,
            )

    await in_thread(record)
    return JsonResponse({"recorded": len(report.held) + len(report.failed)})


def _authorised(request: HttpRequest, policy_id: UUID) -> UUID:
    """The policy's project; NotFound when the caller's key belongs to another one."""
    caller = authenticate(request, Scope.INFER)
    project_id = holdings.project_of(policy_id)
    if caller.project_id not in (None, project_id):
        raise NotFound(f"no policy {policy_id}", field="policy")
    return project_id


def _file(policy_id: UUID, path: str) -> Path:
    """The file on disk, if it is one that is given out. Names are compared with lists, never joined on trust."""
    folder, _, name = path.partition("/")
    if folder == "deltas" and DELTA_NAME.fullmatch(name):
        found = deltas_folder(policy_id) / name
    elif VERSION_FOLDER.fullmatch(folder):
        root = deltas_folder(policy_id).parent / folder
        try:
            listed = set(read_manifest(root).files) | {MANIFEST}
        except CorruptCheckpoint:
            listed = set()
        if name not in listed or name.startswith("train/") or ".." in name:
            raise NotFound("no such object", field="path")
        found = root / name
    else:
        raise NotFound("no such object", field="path")
    if not found.is_file():
        raise NotFound("no such object", field="path")
    return found


async def _read(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as handle:
        while data := await asyncio.to_thread(handle.read, CHUNK_BYTES):
            yield data


def _uuid(text: str, field: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(f"found {text!r}; give a UUID", field=field) from None


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), MAX_WAIT_S)
    except ValueError:
        raise InvalidInput(f"found {text!r}; give seconds", field="wait") from None
