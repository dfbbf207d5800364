import shutil
from collections.abc import Iterator

import pytest

from evals.scorers.sandbox.host import Sandbox
from tests.conftest import unavailable


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """The best this machine offers; every confinement test runs at that level."""
    with Sandbox() as best:
        yield best


@pytest.fixture(scope="session")
def bare() -> Iterator[Sandbox]:
    """No confinement but resource limits: here an attack must be seen to work."""
    with Sandbox(level="none", allow_none=True) as unconfined:
        yield unconfined


@pytest.fixture(scope="session")
def bwrap() -> Iterator[Sandbox]:
    """Bubblewrap, for kernels without Landlock."""
    if shutil.which("bwrap") is None:
        unavailable("bubblewrap is not installed; apt-get install bubblewrap")
    with Sandbox(level="bwrap") as wrapped:
        yield wrapped
