"""Channels: the audit trail tells where notices were sent, and nothing that opens the receiver."""

import json

import pytest

from registry import channels
from registry.models import AuditEvent
from registry.tenancy import tenant

OLD, NEW = "https://93.184.216.34/hooks/secret-old", "https://93.184.216.35:8443/hooks/secret-new"
EVENTS = ["update.failed"]


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield


def trail() -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(object_kind="notification channel").order_by("pk"))


def test_the_trail_tells_the_host_before_and_after_each_change_and_never_the_path(inside):
    channel = channels.create_channel("hook", "webhook", OLD, EVENTS, actor="ann")
    channels.change_channel(channel.id, actor="bob", target=NEW)
    channels.remove_channel(channel.id, actor="bob")
    made, changed, removed = trail()
    assert made.after["to"] == changed.before["to"] == "https://93.184.216.34"
    assert changed.after["to"] == removed.before["to"] == "https://93.184.216.35:8443"
    assert changed.after["target_changed"] is True
    assert "secret" not in json.dumps([[event.before, event.after] for event in (made, changed, removed)])


def test_the_same_address_sent_again_is_no_change_and_another_path_is_one(inside):
    channel = channels.create_channel("hook", "webhook", OLD, EVENTS, actor="ann")
    channels.change_channel(channel.id, actor="ann", target=OLD, events=EVENTS)
    channels.change_channel(channel.id, actor="ann", target=OLD + "2")
    assert [event.after["target_changed"] for event in trail()[1:]] == [False, True]


def test_an_e_mail_channel_is_told_by_its_address(inside):
    channels.create_channel("post", "email", "ann@example.org", EVENTS, actor="ann")
    assert trail()[0].after["to"] == "ann@example.org"


def test_a_test_notice_is_in_the_trail_with_its_host(inside):
    channel = channels.create_channel("hook", "webhook", OLD, EVENTS, actor="ann")
    channels.send_test(channel.id, actor="bob")
    sent = trail()[-1]
    assert (sent.verb, sent.actor, sent.after) == ("send test", "bob", {"to": "https://93.184.216.34"})
