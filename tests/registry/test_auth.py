"""Keys: looked up by prefix, compared by digest, bound to a project, limited by scope and time."""

from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.test import RequestFactory
from django.utils import timezone

from registry import auth
from registry.errors import Forbidden, InvalidInput, Unauthorized
from registry.internal_token import Purpose
from registry.models import ApiKey
from registry.services import create_key, revoke_key
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db


def request(token: str, **headers):
    return RequestFactory().get("/", headers={"authorization": f"Bearer {token}"} | headers)


@pytest.fixture
def key(project):
    with tenant(project.id):
        return create_key("sdk", ["ingest"], actor="owner")[0]


def test_a_key_opens_its_own_project_with_its_scopes(project, key):
    caller = auth.authenticate(request(key), "ingest")
    assert caller.project_id == project.id
    assert not caller.is_internal


def test_a_key_without_the_scope_is_forbidden(key):
    with pytest.raises(Forbidden, match="train"):
        auth.authenticate(request(key), "train")


def test_admin_opens_every_scope(project):
    with tenant(project.id):
        text, _ = create_key("boss", ["admin"], actor="owner")
    assert auth.authenticate(request(text), "train").project_id == project.id


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: key[:-1] + ("a" if key[-1] != "a" else "b"),
        lambda key: key.split(".")[0],
        lambda key: key.split(".")[0] + ".",
        lambda key: "nothing",
        lambda key: "' OR 1=1 --.x",
        lambda key: "a\0b.c",
        lambda key: "internal.wrong",
        lambda key: f"internal.{settings.HOME.secret('internal')}",  # the long-lived form of old
    ],
)
def test_any_other_text_opens_nothing(key, spoil):
    with pytest.raises(Unauthorized):
        auth.authenticate(request(spoil(key)), "ingest")


def test_no_header_says_which_to_send():
    with pytest.raises(Unauthorized, match="Authorization: Bearer"):
        auth.authenticate(RequestFactory().get("/"), "ingest")


def test_an_expired_and_a_revoked_key_open_nothing(project, key):
    with tenant(project.id):
        ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Unauthorized):
        auth.authenticate(request(key), "ingest")
    with tenant(project.id):
        ApiKey.objects.update(expires_at=None)
        revoke_key(key.split(".")[0], actor="owner")
    with pytest.raises(Unauthorized):
        auth.authenticate(request(key), "ingest")


def test_only_the_digest_of_the_secret_is_stored(project, key):
    secret = key.split(".")[1].encode()
    with tenant(project.id):
        row = ApiKey.objects.get()
    assert secret not in bytes(row.digest)
    assert secret.decode() not in f"{row.prefix}{row.name}"


def test_an_internal_token_acts_for_its_project_its_purpose_and_its_source_only(project):
    token = auth.internal_token(Purpose.ANSWERS, project=project.id, source="eval")
    caller = auth.authenticate(request(token), "infer")
    assert (caller.project_id, caller.is_internal, caller.source) == (project.id, True, "eval")
    for scope in ("ingest", "read", "train", "admin"):
        with pytest.raises(Forbidden):
            auth.authenticate(request(token), scope)


@pytest.mark.parametrize("scopes", [[], ["fly"], ["ingest", "fly"]])
def test_a_key_with_unknown_or_no_scopes_is_not_made(project, scopes):
    with tenant(project.id), pytest.raises(InvalidInput) as refusal:
        create_key("x", scopes, actor="owner")
    assert refusal.value.field == "scopes"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"expires_at": datetime(2999, 1, 1)}, "expires_at"),
        ({"expires_at": datetime(9999, 12, 31, 23, tzinfo=UTC)}, "expires_at"),
        ({"items_per_minute": -1}, "items_per_minute"),
        ({"items_per_minute": 0}, "items_per_minute"),
        ({"items_per_minute": 10**12}, "items_per_minute"),
    ],
)
def test_a_key_with_an_end_or_a_rate_that_cannot_be_is_not_made(project, fields, named):
    with tenant(project.id), pytest.raises(InvalidInput) as refusal:
        create_key("x", ["ingest"], actor="owner", **fields)
    assert refusal.value.field == named
