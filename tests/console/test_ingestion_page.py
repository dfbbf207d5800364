"""Ingestion health: outcomes that add up, orphans, lag, warnings, given-up work, each key's last refusal."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from console.reads import ingestion as reads
from feedback.hourly import Span, counts_by_origin, users
from feedback.models import OutcomeCount, Turn, UserSignal
from feedback.rollups import HOUR, hour_of
from feedback.services.rollups import count_all_dirty
from jobs.models import Job
from registry.models import AuditEvent
from registry.tenancy import tenant
from tests.console import factories
from tests.console.sending import send, signal, turn, work_off


@pytest.fixture
def key(api_key):
    return api_key("ingest")


def page(client, query="") -> str:
    return client.get(f"/p/editor/ingestion{query}").content.decode()


def span(hours: float = 24) -> tuple:
    now = timezone.now()
    return now - timedelta(hours=hours), now


def whole(hours: float = 24) -> Span:
    return Span.of(*span(hours), HOUR)


def test_an_empty_project_is_offered_something_to_send(as_owner, project):
    html = page(as_owner)
    assert "Nothing was ever received" in html and "data-copy-from" in html and "/v1/events" in html


def test_nothing_in_this_range_differs_from_nothing_ever(as_owner, project):
    with tenant(project.id):
        OutcomeCount.objects.create(hour=timezone.now() - timedelta(days=20), outcome="accepted", count=3)
    html = page(as_owner)
    assert "Nothing received in this time" in html and "Nothing was ever received" not in html


def test_outcomes_add_up_to_what_was_received_by_hour_and_in_all(as_owner, project, key):
    reply = send(
        as_owner, key, turn("t1"), turn("t1"), turn("t1", completion="other"), signal("g1"), signal("g2", kind=""),
        turn("old", seconds=-500 * 86400), signal("early", seconds=3 * 86400),
    ).json()  # fmt: skip
    with tenant(project.id):
        found = reads.outcomes(whole())
    assert found.items == reply["outcomes"] and found.received == reply["received"] == 7
    assert sum(total for _, _, total in found.rows) == 7
    assert all(sum(counts) == total for _, counts, total in found.rows)


def test_a_month_is_told_by_half_days_and_adds_up_as_by_hours(as_owner, project):
    noon = timezone.now().replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=3)
    with tenant(project.id):
        for hours, outcome, count in ((0, "accepted", 5), (11, "accepted", 2), (12, "invalid", 1), (-1, "accepted", 4)):
            OutcomeCount.objects.create(hour=noon + hours * HOUR, outcome=outcome, count=count)
        by_hour = reads.outcomes(whole(24 * 30))
        by_half_day = reads.outcomes(Span.of(*span(24 * 30), timedelta(hours=12)))
    assert by_half_day.items == by_hour.items == {"accepted": 11, "invalid": 1}
    assert [(start, counts) for start, counts, _ in by_half_day.rows] == [
        (noon + 12 * HOUR, [0, 1]), (noon, [7, 0]), (noon - 12 * HOUR, [4, 0])
    ]  # fmt: skip
    html = page(as_owner, "?range=30d")
    assert "items in 12 hours" in html and "a row for 12 hours" in html and html.count('<td class="nowrap">') == 3


def test_requests_refused_whole_are_counted_apart(as_owner, project, key):
    send(as_owner, key, turn("t1"))
    send(as_owner, key, body="{")
    with tenant(project.id):
        found = reads.outcomes(whole())
    assert (found.received, found.requests) == (1, {"400": 1})
    assert "HTTP 400" in page(as_owner)


def test_b11_items_of_a_batch_and_single_ones_are_all_counted(as_owner, project, key):
    send(as_owner, key, turn("t1"), signal("g1"))
    send(as_owner, key, signal("g2", "retry"))
    with tenant(project.id):
        assert reads.outcomes(whole()).items == {"accepted": 3}


def test_b13_numbers_that_are_none_are_counted_as_invalid_with_the_field_named(as_owner, project, key):
    for value in ("NaN", "Infinity", "-Infinity", "1e400", '"NaN"'):
        item = '{"type": "signal", "id": "g", "turn": "t", "kind": "rating", "value": %s, "at": "2026-11-30T06:00:00Z"}'
        assert send(as_owner, key, body=f'{{"items": [{item % value}]}}').json()["outcomes"] == {"invalid": 1}
    html = page(as_owner)
    assert "<code>value</code>" in html and re.search(r"state-invalid.*?5</td>", html, re.S)


def test_an_orphan_is_shown_with_its_age_and_when_it_expires(as_owner, project, key):
    send(as_owner, key, signal("g1", turn="never-came"))
    html = page(as_owner)
    assert "never-came" in html and re.search(r"in 6 d 2[34] h|in 7 d", html)
    with tenant(project.id):
        assert reads.orphans().waiting == 1


def test_an_orphan_leaves_the_list_when_its_turn_comes(as_owner, project, key):
    send(as_owner, key, signal("g1", turn="t1"))
    send(as_owner, key, turn("t1"))
    assert "every signal found its turn" in page(as_owner)


def test_an_expired_orphan_moves_from_waiting_to_expired_and_the_sum_stays(as_owner, project, key):
    from feedback.services.label import expire_orphans

    send(as_owner, key, signal("g1", turn="never-came"))
    with tenant(project.id):
        UserSignal.objects.update(received_at=timezone.now() - timedelta(days=8))
        OutcomeCount.objects.update(hour=hour_of(timezone.now() - timedelta(days=8)))
        expire_orphans(project.id, now=timezone.now())
        found = reads.outcomes(whole(24 * 30))
    assert (found.items, found.received) == ({"expired": 1}, 1)


def test_lag_is_measured_over_what_arrived(project, as_owner, key):
    send(as_owner, key, turn("t1"), signal("g1"))
    work_off(project)
    with tenant(project.id):
        Turn.objects.update(received_at=Turn.objects.get().at + timedelta(seconds=8))
        lags = {lag.title: lag for lag in reads.lags(*span())}
    assert lags["Turns arrive"].median_s == pytest.approx(8) and lags["Turns arrive"].n == 1
    assert lags["Silence is noticed"].median_s is None and lags["Silence is noticed"].n == 0


def test_without_anything_lag_is_unknown_not_zero(as_owner, project):
    with tenant(project.id):
        assert {lag.median_s for lag in reads.lags(*span())} == {None}
    assert "no data" in page(as_owner)


def count(project):
    """What a worker does within seconds."""
    with tenant(project.id):
        count_all_dirty(project.id)


def warnings() -> list[reads.Warning_]:
    hours = Span.in_hours(*span())
    return reads.warnings(counts_by_origin(hours), users(hours).turns_of_nobody)


def test_warnings_say_what_will_not_be_of_use(as_owner, project, key):
    send(as_owner, key, turn("t1", checkpoint=None, user=None), turn("t2"), turn("t3", model="gpt-x", checkpoint=None))
    count(project)
    with tenant(project.id):
        found = {one.title: (one.n, one.of) for one in warnings()}
    assert found["turns of unknown origin"] == (1, 3) and found["turns without a user"] == (1, 3)
    assert found["turns of our own weights without token ids or logprobs"] == (1, 1)


def test_each_warning_leads_to_exactly_its_turns(as_owner, project, key):
    send(as_owner, key, turn("t1", checkpoint=None, user=None), turn("t2"), turn("t3", model="gpt-x", checkpoint=None))
    count(project)
    links = re.findall(r'href="(/p/editor/turns\?q=[^"]+)"', page(as_owner))
    counts = [as_owner.get(link.replace("&amp;", "&")).content.decode().count("<tr data-peek") for link in links]
    assert counts == [1, 1, 1, 3]


@pytest.mark.parametrize(
    ("usage", "is_without"),
    [({"input": 9}, True), ({"output": 9}, True), (None, True), ({"input": 0, "output": 0}, False)],
)
def test_turns_without_usage_are_counted_and_listed_alike(as_owner, project, key, usage, is_without):
    send(as_owner, key, turn("told", usage={"input": 9, "output": 9}), turn("asked", usage=usage))
    count(project)
    link = re.search(r'href="(/p/editor/turns\?q=usage[^"]+)"', page(as_owner))
    assert bool(link) is is_without
    if link:
        html = as_owner.get(link[1].replace("&amp;", "&")).content.decode()
        assert html.count("<tr data-peek") == 1 and "asked" in html


def test_a_warning_lists_the_whole_hours_that_it_counts(as_owner, project, key):
    send(as_owner, key, turn("t1", at=hour_of(timezone.now()).isoformat()))
    count(project)
    html = page(as_owner, "?range=15m")
    link = re.search(r'href="(/p/editor/turns\?q=usage[^"]+)"', html)
    assert as_owner.get(link[1].replace("&amp;", "&")).content.decode().count("<tr data-peek") == 1


def test_work_that_waits_is_counted_by_kind(as_owner, project, key):
    send(as_owner, key, turn("t1"), signal("g1"))
    with tenant(project.id):
        (kind,) = reads.work().kinds
    assert (kind.kind, kind.queued, kind.quarantined) == ("feedback.label", 1, 0)


def test_another_projects_work_is_not_counted(project, other_project):
    factories.make_given_up_job(other_project)
    with tenant(project.id):
        assert reads.work().kinds == [] and reads.work().given_up == []


def test_a_job_that_was_given_up_is_replayed_by_an_engineer_and_audited(as_engineer, project):
    job = factories.make_given_up_job(project, error="ValueError: <script>alert(1)</script>")
    html = page(as_engineer)
    assert "Replay" in html and "<script>alert" not in html
    html = as_engineer.post(f"/p/editor/ingestion/jobs/{job.pk}/replay", follow=True).content.decode()
    assert "five new attempts" in html and Job.objects.get().state == "queued"
    with tenant(project.id):
        assert AuditEvent.objects.get(verb="replay").actor == "engineer"


def test_a_viewer_sees_no_replay_button(client, viewer, project):
    factories.make_given_up_job(project)
    client.force_login(viewer)
    assert "Replay" not in page(client)


def test_each_key_shows_what_it_was_last_refused(as_owner, project, key):
    send(as_owner, key, turn("t1"), turn("t2", unknown_thing=1))
    html = page(as_owner)
    assert "unknown_thing" in html and key.split(".")[0] in html


def test_c18_an_old_range_and_a_silly_one_open(as_owner, project, key):
    send(as_owner, key, turn("t1"))
    for query in ("?range=90d", "?range=nonsense", "?from=2026-01-01&to=2026-02-01", "?tz=Asia/Seoul"):
        assert as_owner.get(f"/p/editor/ingestion{query}").status_code == 200
