import pytest
from django.contrib.auth.models import update_last_login
from django.core import signing

from registry import signin


def test_a_link_opens_its_account_once(owner):
    token = signin.sign_in_token(owner)
    assert signin.redeem(token) == owner
    update_last_login(None, owner)
    assert signin.redeem(token) is None


def test_signing_in_elsewhere_uses_up_every_open_link(owner):
    first = signin.sign_in_token(owner)
    update_last_login(None, owner)
    assert signin.redeem(signin.sign_in_token(owner)) == owner
    assert signin.redeem(first) is None


def test_a_link_ends_after_a_day(owner, monkeypatch: pytest.MonkeyPatch):
    token = signin.sign_in_token(owner)
    monkeypatch.setattr(signin, "MAX_AGE_S", -1)
    assert signin.redeem(token) is None


@pytest.mark.parametrize("token", ["", "x", "a:b:c"])
def test_a_made_up_link_opens_nothing(db, token: str):
    assert signin.redeem(token) is None


def test_a_signature_made_for_something_else_opens_nothing(owner):
    token = signing.dumps({"user": owner.pk, "last": ""}, salt="other")
    assert signin.redeem(token) is None


def test_a_link_of_a_deactivated_user_opens_nothing(owner):
    token = signin.sign_in_token(owner)
    owner.is_active = False
    owner.save()
    assert signin.redeem(token) is None


def test_a_previews_head_does_not_use_the_link_up(client, owner):
    link = f"/sign-in/{signin.sign_in_token(owner)}"
    assert client.head(link).status_code == 405
    client.get(link)
    assert client.session["_auth_user_id"] == str(owner.pk)
