"""Notices reach their channels: signed, retried, logged, never called sent before the receiver has said so."""

import hashlib
import hmac
import json
from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone

from jobs import handlers
from jobs import services as jobs
from jobs.models import Job
from registry import deliveries, notifications, webhooks
from registry.models import AuditEvent, DeliveryState, Notice, NoticeDelivery, NoticeKind, NotificationChannel
from registry.tenancy import tenant
from tests.registry.receiver import receiving

FAILED = NoticeKind.UPDATE_FAILED


@pytest.fixture
def receiver(settings):
    with receiving() as one:
        settings.OUTBOUND_ALLOW = [f"127.0.0.1:{one.port}"]
        yield one


@pytest.fixture
def channel(project):
    def make(target, kind="webhook", events=(FAILED.value,), **columns):
        with tenant(project.id):
            return NotificationChannel.objects.create(
                name=f"{kind} {target}", kind=kind, target=target, events=list(events), created_by="owner", **columns
            )

    return make


def run_due(*, hurry: bool = True) -> int:
    """Do every delivery job there is, also those that wait for their time; how many were done."""
    if hurry:
        Job.objects.filter(state="queued").update(run_at=timezone.now())
    done = 0
    while (job := jobs.claim_next(["default"], "test")) is not None:
        jobs.run(job)
        done += 1
    return done


def only_delivery(project) -> NoticeDelivery:
    with tenant(project.id):
        return NoticeDelivery.objects.select_related("notice", "channel").get()


def test_a_receiver_that_fails_twice_has_one_delivery_record_with_three_attempts(project, channel, receiver):
    # CASES I.42
    made = channel(receiver.url)
    receiver.answers = [500, 500]
    notifications.emit(FAILED, project.id, {"title": "The update failed", "path": "/p/editor/updates"})
    for state in (DeliveryState.WAITING, DeliveryState.WAITING, DeliveryState.SENT):
        assert run_due() == 1
        assert only_delivery(project).state == state
    delivery = only_delivery(project)
    assert [attempt["status"] for attempt in delivery.attempts] == [500, 500, 200]
    assert all(attempt["duration_ms"] > 0 and attempt["excerpt"] == "thank you" for attempt in delivery.attempts)
    assert delivery.sent_at is not None and run_due() == 0
    assert {headers["strop-delivery"] for headers, _ in receiver.got} == {str(delivery.pk)}
    assert made.num_failures_in_row == 0


def test_the_signature_is_over_the_time_and_the_raw_body(project, channel, receiver):
    made = channel(receiver.url)
    notifications.emit(FAILED, project.id, {"title": "é"})
    run_due()
    headers, body = receiver.got[0]
    parts = dict(pair.split("=") for pair in headers["strop-signature"].split(","))
    expected = hmac.new(webhooks.secret_of(made).encode(), f"{parts['t']}.".encode() + body, hashlib.sha256)
    assert parts["v1"] == expected.hexdigest()
    assert abs(int(parts["t"]) - timezone.now().timestamp()) < 60
    said = json.loads(body)
    assert (said["event"], said["project"], said["data"]) == ("update.failed", "editor", {"title": "é"})


def test_a_private_address_is_refused_at_the_attempt_too_and_not_tried_again(project, channel, settings):
    settings.OUTBOUND_ALLOW = []
    with receiving() as inside:
        channel(inside.url)
        notifications.emit(FAILED, project.id, {"title": "x"})
        run_due()
        delivery = only_delivery(project)
        assert inside.got == []
    assert delivery.state == DeliveryState.GIVEN_UP
    assert "not public" in delivery.attempts[0]["excerpt"] and delivery.attempts[0]["status"] is None


def test_a_redirect_is_not_followed(project, channel, receiver):
    channel(receiver.url)
    receiver.answers, receiver.headers = [302], {"location": "http://169.254.169.254/latest"}
    notifications.emit(FAILED, project.id, {"title": "x"})
    run_due()
    assert len(receiver.got) == 1 and "redirect" in only_delivery(project).attempts[0]["excerpt"]


def test_a_receiver_that_is_not_there_is_an_attempt_without_a_status(project, channel, settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    channel("http://127.0.0.1:9/")
    notifications.emit(FAILED, project.id, {"title": "x"})
    run_due()
    attempt = only_delivery(project).attempts[0]
    assert attempt["status"] is None and attempt["excerpt"].startswith("ConnectError")


def test_pauses_grow_jitter_and_end():
    assert [deliveries.delay_after(n, chance=0.5) for n in range(1, 7)] == [5, 30, 120, 600, 3600, None]
    assert deliveries.delay_after(1, chance=0) == 4 and deliveries.delay_after(2, chance=1) == 36


def test_five_deliveries_given_up_in_a_row_switch_the_channel_off_visibly(project, channel, receiver):
    made = channel(receiver.url)
    receiver.answers = [500] * 100
    for _ in range(5):
        notifications.emit(FAILED, project.id, {"title": "x"})
        while run_due():
            pass
    with tenant(project.id):
        made.refresh_from_db()
        assert not made.is_enabled and "5 deliveries in a row were given up" in made.disabled_reason
        assert AuditEvent.objects.filter(verb="disable", object_kind="notification channel").count() == 1
        assert {len(row.attempts) for row in NoticeDelivery.objects.all()} == {6}
    notifications.emit(FAILED, project.id, {"title": "x"})
    assert run_due() == 0


def test_a_receiver_that_is_gone_switches_the_channel_off_at_once(project, channel, receiver):
    channel(receiver.url)
    receiver.answers = [410]
    notifications.emit(FAILED, project.id, {"title": "x"})
    run_due()
    with tenant(project.id):
        assert NotificationChannel.objects.get().disabled_reason == "the receiver answered 410: gone"


def test_one_that_arrives_forgives_those_given_up_before(project, channel, receiver):
    channel(receiver.url, num_failures_in_row=4)
    notifications.emit(FAILED, project.id, {"title": "x"})
    run_due()
    with tenant(project.id):
        assert NotificationChannel.objects.get().num_failures_in_row == 0


def test_only_channels_that_asked_for_the_kind_are_told(project, channel, receiver):
    channel(receiver.url, events=["gate.decided"])
    notifications.emit(FAILED, project.id, {"title": "x"})
    assert run_due() == 0


def test_the_same_key_is_told_once(project, channel, receiver):
    channel(receiver.url)
    for _ in range(3):
        notifications.emit(FAILED, project.id, {"title": "x"}, key="run-1")
    run_due()
    assert len(receiver.got) == 1


def test_another_project_hears_nothing(project, other_project, channel, receiver):
    channel(receiver.url)
    notifications.emit(FAILED, other_project.id, {"title": "x"})
    assert run_due() == 0


def test_what_is_rolled_back_is_not_told(project, channel, receiver):
    channel(receiver.url)
    with pytest.raises(ZeroDivisionError), tenant(project.id):
        notifications.emit(FAILED, project.id, {"title": "x"})
        raise ZeroDivisionError
    assert run_due() == 0
    with tenant(project.id):
        assert not Notice.objects.exists()


def test_an_email_says_what_happened_and_where_to_look(project, channel, settings):
    channel("ann@example.org", kind="email")
    notifications.emit(
        FAILED,
        project.id,
        {"title": "The update to editor@3\nfailed", "path": "/p/editor/updates", "error": "no space"},
    )
    run_due()
    (message,) = mail.outbox
    assert message.subject == "[Strop editor] The update to editor@3 failed" and message.to == ["ann@example.org"]
    assert "error: no space" in message.body and f"{settings.PUBLIC_URL}/p/editor/updates" in message.body
    assert only_delivery(project).state == DeliveryState.SENT


def test_a_mail_server_that_is_away_is_tried_again(project, channel, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    channel("ann@example.org", kind="email")
    notifications.emit(FAILED, project.id, {"title": "x"})
    run_due()
    delivery = only_delivery(project)
    assert delivery.state == DeliveryState.WAITING and delivery.next_at > timezone.now()
    assert delivery.attempts[0]["status"] is None


def test_a_job_given_up_is_told_and_a_delivery_given_up_is_not(project, channel, receiver):
    channel(receiver.url, events=["job.quarantined"])
    handlers.register("test.fails", fails)
    jobs.enqueue("test.fails", project_id=project.id)
    for _ in range(5):
        run_due()
    quarantined = Job.objects.get(state="quarantined")
    while run_due():
        pass
    said = json.loads(receiver.got[0][1])
    assert (said["data"]["job"], said["data"]["job_kind"]) == (quarantined.pk, "test.fails")
    assert said["data"]["error"] == "ZeroDivisionError: division by zero"
    assert len(receiver.got) == 1


def fails(job):
    return 1 / 0


def test_a_worker_that_dies_each_time_is_told_when_the_job_is_given_up(project, channel, receiver):
    channel(receiver.url, events=["job.quarantined"])
    job_id = jobs.enqueue("feedback.label", project_id=project.id)
    for _ in range(5):
        assert jobs.claim(job_id, "dies")
        Job.objects.filter(id=job_id).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert jobs.claim(job_id, "dies") is None
    run_due()
    assert json.loads(receiver.got[0][1])["data"]["error"] == "the worker died each time it ran this job"
