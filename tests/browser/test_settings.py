"""Settings, first steps and the API's page in Chromium: themes, a phone's width, axe, and what a person does there."""

import json
from datetime import UTC, datetime

import httpx
import pytest

from registry.services import create_key
from registry.tenancy import tenant
from tests.browser.looks import faults_of, violations
from tests.console import factories, settings_rows

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

HOSTILE = "<script>alert(1)</script> \u202egnol " + "x" * 80


@pytest.fixture
def paths(loop, project, owner):
    """Every page with many rows, some of them hostile."""
    with tenant(project.id):
        hook = settings_rows.make_channel("on call", kind="webhook", target="https://hooks.example.com/strop")
        settings_rows.make_delivery(hook, statuses=(500, None, 200), title="The update to editor@4 failed")
        settings_rows.make_delivery(hook, statuses=(503,), title=HOSTILE)
        settings_rows.make_channel(
            HOSTILE, is_enabled=False, disabled_reason="5 deliveries in a row were given up; the last: 503"
        )
        create_key("editor plugin", ["ingest", "infer"], actor="owner", created_by=owner)
        create_key(HOSTILE, ["ingest"], actor="owner", origins=["https://app.example.com"], items_per_minute=600)
        factories.make_policy("second")
        settings_rows.make_import("third", "storing", progress="downloading SmolLM2-135M-Instruct (93 MB)")
        settings_rows.make_import("fourth", "failed", error="tokenizer.json is missing; save the tokenizer")
    return {
        "settings": "/p/editor/settings",
        "settings-members": "/p/editor/settings/members",
        "settings-keys": "/p/editor/settings/keys",
        "settings-policies": "/p/editor/settings/policies",
        "settings-notifications": "/p/editor/settings/notifications",
        "settings-channel": f"/p/editor/settings/notifications/{hook.id}",
        "settings-audit": "/p/editor/settings/audit",
        "settings-password": "/p/editor/settings/password",
        "first-steps": "/p/editor/start",
        "api-docs": "/api/v1/docs",
    }


def test_every_page_is_clean_in_each_theme_and_on_a_phone(visit, paths):
    assert faults_of(visit, "owner", paths, is_whole=False) == {}


def test_empty_pages_are_clean(visit, owner):
    names = ("settings/keys", "settings/policies", "settings/notifications", "settings/audit", "start")
    paths = {f"{name.replace('/', '-')}-empty": f"/p/editor/{name}" for name in names}
    assert faults_of(visit, "owner", paths, looks=["light", "dark"]) == {}


def test_first_steps_tick_live_from_a_new_key_to_the_first_signal(visit, owner, site, project):
    visitor = visit("owner")
    visitor.open("/p/editor/start")
    page = visitor.page
    page.click("text=Make a key and fill it in")
    key = page.text_content(".once code")
    assert f"STROP_KEY={key}" in page.text_content("#events-curl")
    visitor.shoot("first-steps-key")
    page.wait_for_selector("[data-live-state]:text('live')")
    now = datetime.now(UTC).isoformat()
    headers = {"authorization": f"Bearer {key}"}
    wrong = {"type": "signal", "id": "s0", "turn": "t", "kind": "like", "at": now}
    httpx.post(f"{site}/v1/events", json={"items": [wrong]}, headers=headers)
    page.wait_for_selector("#start-refusals code:text('kind')")
    turn = {"type": "turn", "id": "t", "session": "s", "at": now, "model": "m", "prompt": "1 + 1 =", "completion": "2"}
    signal = {"type": "signal", "id": "s1", "turn": "t", "kind": "accept", "at": now}
    httpx.post(f"{site}/v1/events", json={"items": [turn, signal]}, headers=headers)
    page.wait_for_selector("[data-step=turn].is-done")
    page.wait_for_selector("[data-step=signal].is-done")
    assert page.locator("[data-step=label].is-done").count() == 0 and visitor.complaints == []


def test_the_snippets_are_one_click_apart_and_copied_whole(visit, owner, loop):
    visitor = visit("owner")
    visitor.open("/p/editor/start")
    visitor.page.click("#tab-gateway-javascript")
    assert visitor.page.is_visible("#gateway-javascript") and not visitor.page.is_visible("#gateway-curl")
    visitor.page.keyboard.press("ArrowRight")
    assert visitor.page.is_visible("#gateway-openai-node") and visitor.complaints == []


def test_a_new_key_is_shown_once(visit, owner):
    visitor = visit("owner")
    visitor.open("/p/editor/settings/keys")
    page = visitor.page
    assert not page.is_visible("#origins")
    page.check("input[value=browser]")
    assert page.is_visible("#origins") and not page.is_visible("input[value=infer]")
    page.check("input[value=server]")
    page.fill("#name", "plugin")
    page.click("text=Make key")
    page.wait_for_selector("#new-key")
    text = page.text_content("#new-key")
    visitor.shoot("settings-key-made")
    assert violations(page) == []
    visitor.open("/p/editor/settings/keys")
    assert text.split(".")[1] not in page.content() and "plugin" in page.content() and visitor.complaints == []


def test_an_invited_person_signs_in_and_chooses_a_password(visit, owner, browser):
    visitor = visit("owner")
    visitor.open("/p/editor/settings/members")
    visitor.page.fill("#username", "ann")
    visitor.page.select_option("#role", "reviewer")
    visitor.page.click("text=Make a sign-in link")
    link = visitor.page.text_content("#sign-in-link")
    visitor.shoot("settings-invited")
    page = browser.new_page()
    page.goto(visitor.site + "/sign-in/" + link.rpartition("/")[2])
    page.wait_for_url("**/p/editor/overview")
    page.goto(visitor.site + "/p/editor/settings/password")
    for field in ("new_password1", "new_password2"):
        page.fill(f"#id_{field}", "a long enough phrase")
    page.click("text=Set password")
    page.wait_for_selector(".toast:has-text('Your password is set')")
    page.close()
    assert visitor.complaints == []


def test_a_channel_is_made_tested_and_removed_after_a_question(visit, owner, project):
    visitor = visit("owner")
    visitor.open("/p/editor/settings/notifications")
    page = visitor.page
    page.fill("#name", "hook")
    page.fill("#target", "http://127.0.0.1:1/")
    page.click("text=Make channel")
    page.wait_for_selector(".problem:has-text('not public')")
    visitor.complaints.clear()  # Chromium notes that the answer was a 400
    assert page.input_value("#name") == "hook"
    page.select_option("#kind", "email")
    page.fill("#target", "ann@example.org")
    page.click("text=Make channel")
    page.wait_for_url("**/settings/notifications/*-*")
    page.click("text=Send a test")
    page.wait_for_selector(".state-waiting")
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("text=Remove >> nth=0")
    page.wait_for_selector(".toast:has-text('is removed')")
    assert visitor.complaints == []


def test_policies_follow_an_import_live(visit, owner, project):
    with tenant(project.id):
        row = settings_rows.make_import("third", "storing", progress="downloading")
    visitor = visit("owner")
    visitor.open("/p/editor/settings/policies")
    visitor.page.wait_for_selector("text=downloading")
    with tenant(project.id):
        row.state, row.progress, row.error = "failed", "", "tokenizer.json is missing"
        row.save()
    visitor.page.wait_for_selector("text=tokenizer.json is missing")
    assert visitor.complaints == []


def test_demo_data_fills_the_pages_and_goes_again(visit, owner):
    visitor = visit("owner")
    visitor.open("/p/editor/start")
    visitor.page.click("text=Load demo data")
    visitor.page.wait_for_selector("text=Demo data is in this project")
    visitor.open("/p/editor/turns")
    assert visitor.page.locator("tbody tr").count() > 20
    visitor.open("/p/editor/start")
    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.page.click("text=Remove demo data")
    visitor.page.wait_for_selector(".toast:has-text('300 invented turns are gone')")
    assert visitor.complaints == []


def test_the_api_page_matches_its_document(visit, owner, site):
    document = httpx.get(f"{site}/api/v1/openapi.json").json()
    names = [one["operationId"] for found in document["paths"].values() for one in found.values()]
    visitor = visit("owner")
    visitor.open("/api/v1/docs")
    shown = visitor.page.eval_on_selector_all("section[id]:not([id^=type-])", "all => all.map(one => one.id)")
    assert sorted(shown) == sorted(names) and json.dumps(document) and visitor.complaints == []
