import pytest

from registry.tenancy import tenant
from tests.console import factories


@pytest.fixture(autouse=True)
def quick_passwords(settings):
    """Passwords of test users need not resist anyone."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


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
