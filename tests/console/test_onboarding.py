"""First steps: what is ticked, what is copied, what was refused."""

import json

import pytest

from feedback.services import sample_data
from registry.models import ApiKey
from registry.tenancy import tenant
from tests.console import factories


@pytest.fixture
def page(as_owner):
    return lambda: as_owner.get("/p/editor/start").content.decode()


def ticked(page: str) -> list[str]:
    steps = ("key", "policy", "turn", "signal", "label", "update", "promotion")
    return [name for name in steps if f'class="step is-done" data-step="{name}"' in page]


def test_nothing_is_ticked_in_an_empty_project(page):
    assert ticked(page()) == []


def test_steps_tick_as_they_happen(page, project, api_key):
    api_key("ingest")
    assert ticked(page()) == ["key"]
    with tenant(project.id):
        factories.make_policy("other")
    assert ticked(page()) == ["key", "policy"]
    with tenant(project.id):
        factories.make_loop()
    assert ticked(page()) == ["key", "policy", "turn", "signal", "label", "update", "promotion"]


def test_a_new_key_is_filled_into_every_snippet_once(as_owner, page, project):
    with tenant(project.id):
        factories.make_policy()
    made = as_owner.post("/p/editor/start/key").content.decode()
    with tenant(project.id):
        key = ApiKey.objects.get()
    assert made.count(f"{key.prefix}.") == 9 and set(key.scopes) == {"ingest", "infer"}  # 7 snippets, text, button
    assert f"{key.prefix}." not in page()


def test_the_snippets_name_this_server_and_the_policy(page, project, settings):
    settings.PUBLIC_URL = "https://strop.example.com"
    with tenant(project.id):
        factories.make_policy("speller")
    shown = page()
    assert (
        "https://strop.example.com/v1/chat/completions" in shown and "&quot;model&quot;: &quot;speller&quot;" in shown
    )


def test_what_was_refused_last_is_shown_with_the_wrong_field(page, project, client, api_key):
    headers = {"authorization": f"Bearer {api_key('ingest')}"}
    signal = {"type": "signal", "id": "s", "turn": "t", "kind": "<b>like</b>", "at": "2026-11-30T06:00:00Z"}
    client.post("/v1/events", json.dumps({"items": [signal]}), content_type="application/json", headers=headers)
    client.post("/v1/events", "{", content_type="application/json", headers=headers)
    shown = page()
    assert "<code>kind</code>" in shown and "request:400" in shown and "<b>like</b>" not in shown


def test_demo_data_is_offered_to_an_owner_of_an_empty_project_only(page, as_owner, project, client, viewer):
    assert "Load demo data" in page()
    as_owner.post("/p/editor/start/demo")
    assert "Load demo data" not in page() and "Remove demo data" in page()
    client.force_login(viewer)
    assert "Remove demo data" not in client.get("/p/editor/start").content.decode()


def test_removing_it_says_how_much_is_gone(as_owner, page):
    as_owner.post("/p/editor/start/demo")
    said = as_owner.post("/p/editor/start/demo/remove", follow=True).content.decode()
    assert f"{sample_data.NUM_TURNS} invented turns are gone" in said and "Load demo data" in said
