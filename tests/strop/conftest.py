"""What tests of the product's own processes share."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def fresh_application() -> Iterator[None]:
    """The web process' application is made anew from the settings of this test: middleware reads them when made."""
    sys.modules.pop("strop.asgi", None)
    yield
    sys.modules.pop("strop.asgi", None)
