"""Engines to test: each factory opens the Engine protocol in another way, and all pass one conformance suite."""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import torch

from rl_online.serving.client import EngineClient
from rl_online.serving.embedded import EmbeddedEngine
from rl_online.serving.protocol import Engine, EngineUnavailable

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

OpenEngine = Callable[[], AbstractAsyncContextManager[Engine]]


@asynccontextmanager
async def embedded() -> AsyncIterator[Engine]:
    engine = EmbeddedEngine(max_batch=8, max_waiting=16)
    try:
        yield engine
    finally:
        await engine.drain(timeout_s=5)


class EngineProcess:
    """The engine command as `strop up` starts it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.socket = folder / "engine.sock"
        command = [sys.executable, "-m", "rl_online.commands.engine", "--socket", str(self.socket), "--device", "cpu"]
        self.log = folder / "engine.log"
        self.process = subprocess.Popen(
            [*command, "--threads", "1", "--max-batch", "8", "--max-waiting", "16", *arguments],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=self.log.open("wb"),
        )
        deadline = time.monotonic() + 60
        while not self.socket.exists():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def client(self) -> EngineClient:
        return EngineClient(self.socket)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


@pytest.fixture(scope="session")
def engine_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    process = EngineProcess(tmp_path_factory.mktemp("engine"))
    yield process
    process.stop()


@asynccontextmanager
async def over_socket(process: EngineProcess) -> AsyncIterator[Engine]:
    """Unloads what the test loaded: the process is shared."""
    async with process.client() as client:
        try:
            yield client
        finally:
            for held in (await client.info()).checkpoints:
                if not held.is_leaving:
                    await client.unload(held.checkpoint)
            while (await client.info()).checkpoints:
                time.sleep(0.01)


@pytest.fixture(params=["embedded", "socket"])
def open_engine(request: pytest.FixtureRequest) -> OpenEngine:
    if request.param == "embedded":
        return embedded
    process = request.getfixturevalue("engine_process")
    return lambda: over_socket(process)


__all__ = ["EngineProcess", "EngineUnavailable", "OpenEngine"]
