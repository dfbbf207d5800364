import pytest

from registry.tenancy import tenant
from tests.console import factories


@pytest.fixture
def loop(project):
    """Two finished rounds, one update in training, sessions and flags of `project`."""
    with tenant(project.id):
        return factories.make_loop()


@pytest.fixture
def as_owner(client, owner):
    client.force_login(owner)
    return client


@pytest.fixture
def as_engineer(client, engineer):
    client.force_login(engineer)
    return client
