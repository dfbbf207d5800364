"""Keeps an engine holding the checkpoints the web wants it to hold.

One task for each policy: ask what is wanted (a long poll), fetch what is missing, verify, hand it to the engine, drop
what is no longer wanted, report what is held. A delta is preferred when its base is held, the full folder is the way
out when the delta is bad. The web may vanish and come back at any time. Not here: verification of weights
(rl_online.weights) and the engine.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import httpx
import msgspec

from registry.internal_token import Purpose, mint
from rl_online.serving.protocol import CheckpointName, Engine, EngineError, HeldCheckpoint
from rl_online.weights.errors import CorruptCheckpoint, CorruptDelta
from rl_online.weights.manifest import MANIFEST, FileRow, parse_manifest
from rl_online.weights.publish import parse_delta_manifest

log = logging.getLogger(__name__)

WAIT_S = 20.0  # how long the web may hold a poll: also how often what is held is reported when nothing changes
DISCOVER_S = 3.0  # how soon a new policy is noticed
FIRST_RETRY_S, LAST_RETRY_S = 0.5, 30.0
TIMEOUT = httpx.Timeout(connect=5.0, read=WAIT_S + 15.0, write=10.0, pool=None)
FETCH_BYTES = 1 << 20
ROLE_ORDER = ("serving", "canary", "candidate", "base")  # what users wait for comes first


class DeltaOffer(msgspec.Struct, frozen=True, kw_only=True, rename={"base_version": "from"}):
    base_version: int
    path: str  # on the web
    size: int


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint the web wants held."""

    version: int
    role: str
    tree_digest: str
    full: str  # path of the folder on the web
    delta: DeltaOffer | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True):
    etag: str
    policy: str
    want: list[Want]


class Policies(msgspec.Struct, frozen=True):
    policies: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    version: int
    error: str


def in_order(wants: Iterable[Want]) -> list[Want]:
    """Each version once, the most urgent role first."""
    rank = {role: position for position, role in enumerate(ROLE_ORDER)}
    most_urgent: dict[int, Want] = {}
    for want in sorted(wants, key=lambda want: (rank.get(want.role, len(rank)), want.version)):
        most_urgent.setdefault(want.version, want)
    return list(most_urgent.values())


def has_usable_delta(want: Want, held: Collection[int]) -> bool:
    return want.delta is not None and want.delta.base_version in held


class Puller:
    """Drives one engine. `run` never returns; cancel it."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        web: str,
        secret_file: Path,
        cache: Path,
        crash: Callable[[str], None] = lambda point: None,
    ) -> None:
        """`crash` is called with the name of each point a test may kill the process at."""
        self._crash = crash
        self._engine = engine
        self._name = name
        self._web = web
        self._secret_file = secret_file
        self._cache = cache
        self._followers: dict[str, asyncio.Task[None]] = {}
        self.bytes_fetched = 0  # bodies of everything under /v1/weights/objects

    async def run(self) -> None:
        try:
            while True:
                try:
                    for policy in (await self._get("/v1/weights/policies", Policies)).policies:
                        if policy not in self._followers:
                            self._followers[policy] = asyncio.create_task(self._follow(policy))
                except httpx.HTTPError as error:
                    log.debug("the web does not answer: %s", error)
                await asyncio.sleep(DISCOVER_S)
        finally:
            for follower in self._followers.values():
                follower.cancel()
            await asyncio.gather(*self._followers.values(), return_exceptions=True)

    async def _follow(self, policy: str) -> None:
        etag, retry_s = "", FIRST_RETRY_S
        while True:
            try:
                head = await self._get(f"/v1/weights/head?policy={policy}&after={etag}&wait={WAIT_S:g}", Head)
                failed = await self.catch_up(head)
                await self._report(policy, failed)
            except (httpx.HTTPError, msgspec.DecodeError, OSError) as error:
                log.warning("policy %s: %s; again in %.1f s", policy, error or type(error).__name__, retry_s)
                failed = None
            if failed == []:
                etag, retry_s = head.etag, FIRST_RETRY_S
            else:
                # The old etag makes the web answer at once, with whatever is wanted by then.
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LAST_RETRY_S)

    async def catch_up(self, head: Head) -> list[Failed]:
        """Makes the engine hold what is wanted, as far as possible; what failed, with reasons, and is still missing."""
        failed: list[Failed] = []
        for want in in_order(head.want):
            try:
                await self._obtain(head.policy, want)
            except (CorruptCheckpoint, EngineError) as error:
                log.error("%s@%d: %s", head.policy, want.version, error)
                failed.append(Failed(version=want.version, error=str(error)))
        wanted = {want.version for want in head.want}
        for version in await self._held(head.policy):
            if version not in wanted:
                log.info("dropping %s@%d", head.policy, version)
                await self._engine.unload(f"{head.policy}@{version}")
        await asyncio.to_thread(self._forget_files, head.policy, wanted)
        return failed

    async def _obtain(self, policy: str, want: Want) -> None:
        held = await self._held(policy)
        if want.version not in held:
            if has_usable_delta(want, held):
                try:
                    await self._apply_delta(policy, want)
                    return
                except (CorruptCheckpoint, EngineError) as error:
                    log.error("%s@%d: %s; fetching it in full", policy, want.version, error)
                    await self._report(policy, [Failed(version=want.version, error=str(error))])
            await self._load_full(policy, want)
            return
        if held[want.version].tree_digest != want.tree_digest:
            raise CorruptCheckpoint(f"held with digest {held[want.version].tree_digest[:12]}, wanted is another")

    async def _apply_delta(self, policy: str, want: Want) -> None:
        assert want.delta is not None
        folder = self._cache / policy / "deltas"
        target = folder / PurePosixPath(want.delta.path).name
        described = target.with_name(target.name + ".json")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            described.write_bytes(await self._fetch_small(want.delta.path + ".json"))
            published = parse_delta_manifest(described.read_bytes())
            if published.manifest.tree_digest != want.tree_digest:
                raise CorruptDelta("its manifest leads to another digest than the one wanted")
            await self._fetch(want.delta.path, target, FileRow(size=published.size, sha256=published.sha256))
            base = f"{policy}@{want.delta.base_version}"
            self._crash("engine.before_apply")
            await self._engine.apply_delta(f"{policy}@{want.version}", base=base, delta=target)
            self._crash("engine.after_apply")
        finally:
            target.unlink(missing_ok=True)
            described.unlink(missing_ok=True)
        log.info("%s@%d: held, by a delta of %d bytes", policy, want.version, published.size)

    async def _load_full(self, policy: str, want: Want) -> None:
        folder = self._cache / policy / f"v{want.version:06d}"
        if not folder.is_dir():
            await self._fetch_folder(want, folder)
        try:
            held = await self._engine.load_full(f"{policy}@{want.version}", folder)
        except EngineError:
            shutil.rmtree(folder)
            raise
        if held.tree_digest != want.tree_digest:
            await self._engine.unload(held.checkpoint)
            shutil.rmtree(folder)
            raise CorruptCheckpoint("the folder is whole but not the one wanted")
        log.info("%s@%d: held, in full", policy, want.version)

    async def _fetch_folder(self, want: Want, folder: Path) -> None:
        draft = folder.with_name(folder.name + ".part")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        manifest_bytes = await self._fetch_small(f"{want.full}/{MANIFEST}")
        for name, row in parse_manifest(manifest_bytes).files.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise CorruptCheckpoint(f"the manifest names a file outside its folder: {name}")
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            await self._fetch(f"{want.full}/{name}", draft / path, row)
        (draft / MANIFEST).write_bytes(manifest_bytes)
        draft.rename(folder)

    async def _fetch(self, path: str, target: Path, row: FileRow) -> None:
        """Raises CorruptCheckpoint unless exactly the promised bytes arrive; no more of them are read."""
        digest, size = hashlib.sha256(), 0
        async with self._http() as http, http.stream("GET", path) as response:
            response.raise_for_status()
            with target.open("wb") as handle:
                async for block in response.aiter_bytes(FETCH_BYTES):
                    size += len(block)
                    if size > row.size:
                        break
                    digest.update(block)
                    handle.write(block)
        self.bytes_fetched += size
        if size != row.size or digest.hexdigest() != row.sha256:
            raise CorruptCheckpoint(f"{target.name} arrived damaged")

    async def _fetch_small(self, path: str) -> bytes:
        async with self._http() as http:
            response = await http.get(path)
        response.raise_for_status()
        self.bytes_fetched += len(response.content)
        return response.content

    async def _get(self, path: str, kind: type[Any]) -> Any:
        async with self._http() as http:
            response = await http.get(path)
        response.raise_for_status()
        return msgspec.json.decode(response.content, type=kind)

    async def _report(self, policy: str, failed: list[Failed]) -> None:
        held = await self._held(policy)
        body = {
            "engine": self._name,
            "about": await self._about(),
            "policy": policy,
            "held": [{"version": version, "tree_digest": row.tree_digest} for version, row in sorted(held.items())],
            "failed": [{"version": item.version, "error": item.error} for item in failed],
        }
        async with self._http() as http:
            (await http.post("/v1/weights/held", json=body)).raise_for_status()

    async def _about(self) -> dict[str, Any]:
        """What the engine is and how much it has done since it started."""
        info, metrics = await self._engine.info(), await self._engine.metrics()
        return {
            "code_version": metadata.version("strop"),
            "adapter": info.adapter,
            "device": info.device,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "threads": info.threads,
            "max_batch": info.max_batch,
            "max_waiting": info.max_waiting,
            "running": metrics.running,
            "waiting": metrics.waiting,
            "uptime_s": metrics.uptime_s,
            "tokens_generated": metrics.tokens_generated,
            "requests_refused": metrics.requests_refused,
            "loads": metrics.loads,
            "load_failures": metrics.load_failures,
        }

    async def _held(self, policy: str) -> dict[int, HeldCheckpoint]:
        rows = [(CheckpointName.parse(row.checkpoint), row) for row in (await self._engine.info()).checkpoints]
        return {name.version: row for name, row in rows if name.policy == policy and not row.is_leaving}

    def _forget_files(self, policy: str, wanted: set[int]) -> None:
        kept = {f"v{version:06d}" for version in wanted}
        for folder in (self._cache / policy).glob("v*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client for one exchange: a token is good for minutes, and a restarted web knows no old connection."""
        token = mint(self._secret_file.read_text(), Purpose.WEIGHTS)
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=self._web, headers=headers, timeout=TIMEOUT, trust_env=False) as http:
            yield http
