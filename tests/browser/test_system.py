"""Settings -> System in Chromium: empty, with many and hostile rows, both themes, a phone; and its buttons."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from jobs.models import Job, ProcessBeat
from registry.tenancy import tenant
from tests.browser.looks import faults_of
from tests.console import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SYSTEM = "/p/editor/settings/system"
HOSTILE = "Traceback (most recent call last):\nValueError: <script>alert(1)</script> \u202egnp.exe " + "x" * 5000


@pytest.fixture
def busy(project, loop):
    """Every process kind, one silent, given-up jobs with hostile errors, and backups in the home."""
    now = timezone.now()
    for name, age_s in (("web@box:8000", 2), ("worker@box", 4), ("worker@other-box.example.org", 900), ("beat@box", 4)):
        ProcessBeat.objects.create(
            name=name,
            kind=name.split("@")[0],
            pid=4000 + age_s,
            version="0.1.0",
            started_at=now - timedelta(hours=5),
            seen_at=now - timedelta(seconds=age_s),
        )
    for number in range(12):
        factories.make_given_up_job(project, error=HOSTILE if number % 3 == 0 else "TimeoutError: the judge is away")
    folder = settings.HOME.root / "backups"
    folder.mkdir(exist_ok=True)
    made = [folder / f"strop-2026113{n}T040000Z.tar.zst" for n in range(3)]
    for path in made:
        path.write_bytes(b"x" * 1000)
    yield loop
    for path in made:
        path.unlink()


def test_the_page_is_clean_in_each_theme_and_on_a_phone(visit, owner, busy):
    assert faults_of(visit, "owner", {"system": SYSTEM}) == {}


def test_the_page_of_a_new_project_is_clean(visit, owner, project):
    assert faults_of(visit, "owner", {"system-empty": SYSTEM}, looks=["light"]) == {}


def test_a_given_up_job_is_read_and_replayed(visit, owner, busy):
    visitor = visit("owner")
    visitor.open(SYSTEM)
    visitor.page.click("summary >> text=the judge is away >> nth=0")
    visitor.page.click("tr:has-text('the judge is away') >> text=Replay >> nth=0")
    visitor.page.wait_for_selector(".toast:has-text('five new attempts')")
    assert Job.objects.filter(state="quarantined").count() == 11 and visitor.complaints == []


def test_back_up_now_is_answered(visit, owner, project):
    visitor = visit("owner")
    visitor.open(SYSTEM)
    visitor.page.select_option("#backup-level", "serving")
    visitor.page.click("text=Back up now")
    visitor.page.wait_for_selector(".toast:has-text('The backup begins in a moment')")
    assert Job.objects.get(kind="strop.backup").payload["level"] == "serving" and visitor.complaints == []


def test_a_reset_asks_for_the_name_and_once_more(visit, owner, project):
    with tenant(project.id):
        loop = factories.make_loop(num_turns=12, is_training=False)
    visitor = visit("owner")
    visitor.open(SYSTEM)
    visitor.page.click("summary >> text=Delete what users and the loop made")
    visitor.page.fill("#reset-name", "edito")
    visitor.page.click("text=Delete the data of Editor")
    assert visitor.page.locator("#reset-name:invalid").count() == 1
    asked = []
    visitor.page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    visitor.page.fill("#reset-name", "editor")
    visitor.page.click("text=Delete the data of Editor")
    visitor.page.wait_for_selector(".toast:has-text('the first checkpoint serves again')")
    with tenant(project.id):
        assert loop.policy.deployments.get().checkpoint.version == 1
    assert asked == ["Delete all of it now?"] and visitor.complaints == []
