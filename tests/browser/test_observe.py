"""Session, turn, ingestion and recipes in Chromium: both themes, a phone's width, axe; and what happens on a click."""

import re

import pytest

from feedback.models import LabelRecipe
from feedback.services.recipes import recipe_in_force
from registry.tenancy import tenant
from tests.browser.looks import faults_of, violations
from tests.console import factories
from tests.console.test_turn_page import learned, policy  # noqa: F401 - fixtures

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202egnp.exe\u200b"


@pytest.fixture
def paths(loop, project):
    factories.make_recipes(project)
    factories.make_given_up_job(project)
    with tenant(project.id):
        factories.make_turn("hostile", completion=HOSTILE + "x" * 1_000_000, asked=HOSTILE, user=HOSTILE)
        hostile = factories.Turn.objects.get(session__session_id="hostile")
        factories.UserSignal.objects.create(
            signal_id="orphan", turn_ref="never", kind=HOSTILE[:90], at=hostile.at, metadata={}
        )
    one = loop.turns[11].turn_id
    return {
        "session-page": "/p/editor/sessions/edit-3",
        "session-hostile": "/p/editor/sessions/hostile",
        "turn": f"/p/editor/turns/{one}",
        "turn-hostile": f"/p/editor/turns/{hostile.turn_id}",
        "ingestion": "/p/editor/ingestion",
        "recipes": "/p/editor/recipes",
        "label-recipe": "/p/editor/recipes/labels/2?look=1d",
        "label-recipe-new": "/p/editor/recipes/labels/new",
        "reward-spec": "/p/editor/recipes/rewards/default/2?look=1d",
        "reward-spec-new": "/p/editor/recipes/rewards/default/new",
    }


def test_every_page_is_clean_in_each_theme_and_on_a_phone(visit, owner, paths):
    def tokens_are_shown(name, page):
        if name.startswith("turn"):
            page.wait_for_selector(".tokens")

    assert faults_of(visit, "owner", paths, ready=tokens_are_shown) == {}


def test_empty_pages_are_clean(visit, owner, project):
    empty = {f"{name}-empty": f"/p/editor/{name}" for name in ("ingestion", "recipes")}
    assert faults_of(visit, "owner", empty, looks=["light"]) == {}


def test_older_turns_load_in_place_and_an_anchor_opens_its_window(visit, viewer, project):
    with tenant(project.id):
        factories.make_policy()
        turns = [factories.make_turn("long", index=i) for i in range(90)]
    visitor = visit("viewer")
    visitor.open("/p/editor/sessions/long")
    visitor.page.click("text=Load older turns")
    visitor.page.wait_for_selector("section.turn >> nth=79")
    assert visitor.page.locator("section.turn").count() == 80
    visitor.open(f"/p/editor/sessions/long#{turns[3].turn_id}")
    visitor.page.wait_for_url(re.compile(rf"\?turn={turns[3].turn_id}"))
    visitor.page.wait_for_selector(f"[id='{turns[3].turn_id}']")
    assert visitor.complaints == []


def test_the_tokens_of_a_trained_turn_are_shaded_and_marked(visit, viewer, learned):  # noqa: F811
    visitor = visit("viewer")
    visitor.open(f"/p/editor/turns/{learned.turn_id}")
    visitor.page.wait_for_selector(".token-text .tok-trained")
    assert visitor.page.locator(".token-text .tok-trained").count() == 2
    assert "probability 0.9048" in visitor.page.locator(".token-text .tok").first.get_attribute("title")
    visitor.shoot("turn-learned")
    assert violations(visitor.page) == [] and visitor.complaints == []


def test_an_engineer_makes_looks_at_and_activates_a_label_recipe(visit, engineer, loop, project):
    visitor = visit("engineer")
    visitor.open("/p/editor/recipes/labels/new")
    visitor.page.fill("#f-edit-value", "0.25")
    visitor.page.click("text=What would it have said?")
    visitor.page.wait_for_selector("#look")
    visitor.shoot("label-recipe-look")
    visitor.page.click("text=Make this version")
    visitor.page.wait_for_url("**/recipes/labels/2")
    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.page.click("button:has-text('Put in force')")
    visitor.page.wait_for_selector(".toast:has-text('in force')")
    with tenant(project.id):
        assert recipe_in_force().version == 2 and LabelRecipe.objects.get(version=2).body["edit_value"] == 0.25
    assert visitor.complaints == []


def test_a_given_up_job_is_replayed_from_the_page(visit, engineer, project):
    factories.make_given_up_job(project)
    visitor = visit("engineer")
    visitor.open("/p/editor/ingestion")
    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.page.click("button:has-text('Replay')")
    visitor.page.wait_for_selector(".toast:has-text('five new attempts')")
    assert visitor.page.locator("#given-up").count() == 0 and visitor.complaints == []
