"""Settings forms that were opened before somebody else saved: nothing newer is overwritten unseen, no input is lost."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import Client

from console import stale_forms
from console.stale_forms import Newer, Outdated
from registry.errors import InvalidInput
from registry.models import NotificationChannel, Project
from registry.tenancy import tenant
from rl_online.models import LearningPlan
from tests.console import factories, settings_rows

TITLES = {"wait_s": "Wait", "words": "Words"}


def test_a_form_filled_from_what_still_holds_may_be_saved():
    now = {"wait_s": 120.0, "words": "two\nlines", "every": None, "is_on": False, "events": ["a"]}
    stale_forms.check({"seen": stale_forms.seen(now)}, now, TITLES)


def test_every_newer_value_is_named_with_what_it_was():
    seen = stale_forms.seen({"wait_s": 120.0, "words": "", "every": None, "events": ["a", "b"], "is_on": False})
    with pytest.raises(Outdated) as refused:
        stale_forms.check(
            {"seen": seen}, {"wait_s": 60.5, "words": "new", "every": 3, "events": [], "is_on": True}, TITLES
        )
    assert {(one.title, one.before, one.now) for one in refused.value.newer} == {
        ("Wait", "120", "60.5"), ("Words", "nothing", "new"), ("every", "nothing", "3"), ("events", "a, b", "nothing"),
        ("is_on", "off", "on"),
    }  # fmt: skip


def test_a_value_that_the_form_did_not_know_yet_is_newer():
    with pytest.raises(Outdated) as refused:
        stale_forms.check({"seen": "{}"}, {"wait_s": 1}, TITLES)
    assert refused.value.newer == [Newer(title="Wait", before="nothing", now="1")]


@pytest.mark.parametrize("seen", ["", "x", "[]", "null", "1"])
def test_a_form_that_does_not_say_what_it_was_filled_from_is_refused(seen):
    with pytest.raises(InvalidInput, match="open the page again"):
        stale_forms.check({"seen": seen}, {"wait_s": 1}, TITLES)


@dataclass(frozen=True)
class Form:
    """One settings form: where it stands, what the first person saves, what the second wrote meanwhile."""

    page: str
    action: str
    first: dict[str, Any]
    second: dict[str, Any]
    says: str  # of the newer value
    kept: str  # of the second person's input, in the form that is shown again
    stored: Any  # what is stored after the refusal, and then
    then: Any  # after the second save
    read: Any = field(repr=False, default=None)


def settings_of(*names: str) -> tuple[Any, ...]:
    """None for what was never changed."""
    return tuple(Project.objects.get().settings.get(name) for name in names)


KEPT_HOURS = 'name="orphan_hours" inputmode="decimal" required value="5"'
BOUNDS = {"policy": "editor", "min_turns": "50", "max_turns": "400"}
FORMS = {
    "project": Form(
        page="settings", action="settings/change",
        first={"decision_window_s": "30", "orphan_hours": "168"},
        second={"decision_window_s": "120", "orphan_hours": "5"},
        says="Decision window was 120, is now <b>30</b>", kept=KEPT_HOURS,
        stored=(30, 168), then=(120, 5),
        read=lambda: settings_of("decision_window_s", "orphan_hours"),
    ),
    "rhythm": Form(
        page="updates", action="updates/schedule",
        first=BOUNDS | {"every_turns": "200", "promotion": "automatic"},
        second=BOUNDS | {"every_turns": "300", "promotion": "by_person"},
        says="Every N labelled turns was 500, is now <b>200</b>", kept='name="every_turns" value="300"',
        stored=(200, "automatic"), then=(300, "by_person"),
        read=lambda: LearningPlan.objects.values_list("every_turns", "promotion").get(),
    ),
    "review": Form(
        page="review", action="review/settings",
        first={"review_instructions": "Be kind.", "review_responses": "1"},
        second={"review_instructions": "Be strict.\nVery.", "review_responses": "2"},
        says="Instructions for reviewers was nothing, is now <b>Be kind.</b>", kept="Be strict.\nVery.</textarea>",
        stored=("Be kind.", 1), then=("Be strict.\nVery.", 2),
        read=lambda: settings_of("review_instructions", "review_responses"),
    ),
    "channel": Form(
        page="settings/notifications/{channel}", action="settings/notifications/{channel}/change",
        first={"target": "bob@example.org", "events": ["update.failed"]},
        second={"target": "cat@example.org", "events": ["update.failed"]},
        says="Address was ann@example.org, is now <b>bob@example.org</b>", kept='value="cat@example.org"',
        stored="bob@example.org", then="cat@example.org",
        read=lambda: NotificationChannel.objects.get().target,
    ),
}  # fmt: skip


@pytest.fixture
def other_owner(member, project):
    return member(project, "owner", username="ann")


@pytest.fixture
def place(project, owner):
    """place(path) -> the address, of a project with a policy that learns and a channel."""
    with tenant(project.id):
        factories.make_policy(every_turns=500, min_turns=4, max_turns=900, promotion="automatic")
        channel = settings_rows.make_channel()
    return lambda path: f"/p/editor/{path.format(channel=channel.id)}"


@pytest.mark.parametrize("name", FORMS)
def test_who_saves_second_is_shown_what_is_newer_keeps_the_input_and_may_mean_it(
    project, owner, other_owner, place, name
):
    form = FORMS[name]
    first, second = Client(), Client()
    first.force_login(owner)
    second.force_login(other_owner)
    page, action = place(form.page), place(form.action)
    seen = settings_rows.seen_on(second.get(page).content.decode(), action)

    def stored():
        with tenant(project.id):
            return form.read()

    assert first.post(action, form.first | {"seen": seen}).status_code == 302
    refused = second.post(action, form.second | {"seen": seen})
    html = refused.content.decode()
    assert refused.status_code == 409 and stored() == form.stored
    assert form.says in html and "Saved last by owner" in html and form.kept in html

    again = form.second | {"seen": settings_rows.seen_on(html, action)}
    assert second.post(action, again).status_code == 302 and stored() == form.then


@pytest.mark.parametrize("name", FORMS)
def test_a_form_without_what_it_was_filled_from_changes_nothing(project, as_owner, place, name):
    form = FORMS[name]
    with tenant(project.id):
        before = form.read()
    assert as_owner.post(place(form.action), form.second).status_code == 400
    with tenant(project.id):
        assert form.read() == before
