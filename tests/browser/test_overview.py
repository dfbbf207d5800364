"""Overview and Alerts in Chromium: both themes, a phone, many versions, hostile words, the links of their figures."""

from datetime import timedelta

import pytest
from django.utils import timezone

from feedback.services.rollups import count_all_dirty
from registry.tenancy import tenant
from rl_online.models import Alarm
from tests.browser.looks import faults_of, violations
from tests.console import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

HOSTILE = "<script>alert(1)</script> \u202emoc.elpmaxe " + "x" * 2000


@pytest.fixture
def busy(loop, project):
    """Many versions over a day, and alarms of every severity, one with hostile words."""
    now = timezone.now()
    with tenant(project.id):
        for place in range(240):
            version = 1 + place // 80
            outcome = "accept" if place % (2 + version) == 0 else "reject"
            at = now - timedelta(minutes=6 * (240 - place))
            factories.make_turn(f"d{place // 4}", at=at, version=version, user=f"u{place % 9}", outcome=outcome)
        count_all_dirty(project.id)
    factories.make_alarm(project)
    factories.make_alarm(project, "label_lag", policy="", state="acknowledged", acknowledged_by="mia",
                         acknowledged_at=now, summary=HOSTILE)  # fmt: skip
    factories.make_alarm(project, "paused", state="closed", closed_by="mia", closed_at=now, note=HOSTILE)
    return loop


def test_overview_and_alerts_are_clean_in_each_theme_and_on_a_phone(visit, engineer, busy):
    paths = {"overview-hour": "overview?range=1h", "overview-day": "overview?range=1d", "alerts": "alerts"}
    paths = {name: f"/p/editor/{path}" for name, path in paths.items()}
    faults = faults_of(visit, "engineer", paths, is_whole=False, ready=lambda _, page: page.wait_for_timeout(400))
    assert faults == {}


def test_alerts_without_any_say_what_they_are(visit, engineer, project):
    visitor = visit("engineer")
    visitor.open("/p/editor/alerts")
    visitor.shoot("alerts-empty")
    assert "No alarm so far" in visitor.page.inner_text("main") and violations(visitor.page) == []


def test_an_alarm_is_looked_after_and_closed_with_a_word(visit, engineer, busy, project):
    visitor = visit("engineer")
    visitor.open("/p/editor/alerts")
    visitor.page.click("text=I look after it")
    visitor.page.wait_for_selector(".toast:has-text('You look after')")
    card = visitor.page.locator(".alarm-card", has_text="Accept share dropped")
    card.locator("input[name=note]").fill("rolled back")
    card.locator("button:has-text('Close')").click()
    visitor.page.wait_for_selector(".toast:has-text('Closed')")
    with tenant(project.id):
        alarm = Alarm.objects.get(rule="share_drop")
    assert (alarm.state, alarm.acknowledged_by, alarm.closed_by, alarm.note) == (
        "closed", "engineer", "engineer", "rolled back",
    )  # fmt: skip
    assert visitor.complaints == []


def test_a_point_of_the_accept_share_leads_to_its_turns(visit, engineer, busy):
    visitor = visit("engineer")
    visitor.open("/p/editor/overview?range=1d")
    urls = "trace => (trace.customdata || []).filter(Boolean).map(one => one.url)"
    points = visitor.page.evaluate(f"document.querySelector('[data-figure=over_time]').data.flatMap({urls})")
    assert points and all("/turns?" in url for url in points)
    visitor.open(points[-1])
    assert visitor.page.locator("#results tbody tr").count() > 0
