"""What the pages say: with nothing, with one of everything, and with text that means harm."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from registry.tenancy import tenant
from tests.console import factories

VALUE = re.compile(r'value="[^"]*"')  # what a form sends back must stay as it came
LISTS = ["overview", "sessions", "flagged", "updates", "checkpoints"]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202egnp.exe\u200b{{ 7|add:7 }}"


def page(client, name, /, **kwargs):
    return client.get(reverse(f"console:{name}", kwargs={"project": "editor"} | kwargs)).content.decode()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("overview", "No policy yet"),
        ("sessions", "No session yet"),
        ("flagged", "No turn was ever flagged"),
        ("updates", "No update yet"),
        ("checkpoints", "No checkpoint yet"),
    ],
)
def test_an_empty_page_says_what_it_is_and_what_to_copy(as_owner, project, name, says):
    html = page(as_owner, name)
    assert says in html and "data-copy-from" in html


def test_a_policy_without_traffic_offers_its_own_snippet(as_owner, project, settings):
    with tenant(project.id):
        factories.make_policy()
    html = page(as_owner, "overview")
    assert f"{settings.PUBLIC_URL}/v1/chat/completions" in html and "editor" in html


def test_a_filter_that_matches_nothing_differs_from_no_sessions(as_owner, loop):
    html = as_owner.get("/p/editor/sessions?user=nobody").content.decode()
    assert "No session matches" in html and "No session yet" not in html


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("user=u-0", True),
        ("checkpoint=editor@2", True),
        ("checkpoint=editor@99", False),
        ("outcome=unsettled", True),
        ("source=import", False),
        ("flagged=open", True),
        ("surface=completion&outcome=accept", True),
        ("user=%00", True),
    ],
)
def test_sessions_are_narrowed_by_the_address(as_owner, loop, query, found):
    html = as_owner.get(f"/p/editor/sessions?{query}").content.decode()
    assert ("No session matches" in html) is not found


def test_a_filter_over_htmx_answers_only_the_results(as_owner, loop):
    response = as_owner.get("/p/editor/sessions?user=u-0", HTTP_HX_REQUEST="true")
    assert "<html" not in response.content.decode() and "edit-0" in response.content.decode()


def test_what_is_unknown_is_not_a_zero(as_owner, project):
    with tenant(project.id):
        factories.make_policy()
        factories.make_turn("s", outcome=None, signals=(), input_tokens=None, latency_ms=None)
    html = page(as_owner, "session", session="s")
    assert html.count("no data") >= 2 and "not settled" in html


def test_a_session_shows_edits_scores_and_what_learned_from_it(as_owner, loop):
    html = page(as_owner, "session", session="edit-0")
    assert "<ins>" in html and "unit_tests" in html and "update to editor@2" in html and "editor@2</a>" in html


def test_a_gate_report_shows_decision_bounds_and_the_judge_without_a_vote(as_owner, loop):
    html = page(as_owner, "checkpoint", name="editor@3")
    wanted = ("non-inferiority", "seen families", "unseen families", "SE by family", "without a vote", "state-hold")
    assert [words for words in wanted if words not in html] == []


def test_promoting_against_the_gate_needs_a_reason(as_engineer, loop, project):
    url = reverse("console:checkpoint-promote", args=["editor", "editor@3"])
    html = as_engineer.post(url, {"reason": " "}, follow=True).content.decode()
    assert "toast-error" in html and "reason" in html
    html = as_engineer.post(url, {"reason": "the tests are wrong"}, follow=True).content.decode()
    assert "promote against the gate" in html and "the tests are wrong" in html


def test_rolling_back_serves_the_predecessor(as_engineer, loop, project):
    url = reverse("console:checkpoint-roll-back", args=["editor", "editor@2"])
    html = as_engineer.post(url, {"reason": "users complain"}, follow=True).content.decode()
    assert "editor@1 serves again." in html


def test_rolling_back_twice_from_the_same_page_moves_the_line_once(as_engineer, loop, project):
    url = reverse("console:checkpoint-roll-back", args=["editor", "editor@2"])
    as_engineer.post(url, {"reason": "users complain"})
    html = as_engineer.post(url, {"reason": "users complain"}, follow=True).content.decode()
    assert "editor@2 is no longer serving; editor@1 is" in html


def test_too_few_samples_says_how_many_more(as_engineer, project):
    with tenant(project.id):
        factories.make_policy(min_turns=64)
        for i in range(3):
            factories.make_turn(f"s{i}")
    html = as_engineer.get("/p/editor/updates/new").content.decode()
    assert "more labelled turns needed" in html and "disabled" in html


def test_a_setting_that_is_no_number_is_named(as_engineer, loop):
    response = as_engineer.post("/p/editor/updates/new", {"policy": "editor", "set-learning_rate": "fast"})
    assert response.status_code == 400 and "give a number" in response.content.decode()


def test_pausing_is_said_on_the_page(as_engineer, loop):
    url = reverse("console:learning-switch", args=["editor"])
    html = as_engineer.post(url, {"policy": "editor", "to": "pause"}, follow=True).content.decode()
    assert "Learning of editor is paused" in html and "Resume learning" in html


def test_hostile_text_is_shown_as_text(as_owner, project):
    with tenant(project.id):
        factories.make_policy()
        turn = factories.make_turn(
            "a/b ?#<x>",
            completion=HOSTILE,
            asked=HOSTILE,
            user=HOSTILE[:100],
            surface=HOSTILE[:60],
            edited_to=HOSTILE + "!",
        )
        factories.make_flag(turn)
    for html in (page(as_owner, "session", session="a/b ?#<x>"), page(as_owner, "flagged"), page(as_owner, "sessions")):
        assert "<script>alert" not in html and "<img src=x" not in html
        assert "U+202E" in html and "\u202e" not in VALUE.sub("", html)


def test_a_megabyte_on_one_line_is_folded_and_cut(as_owner, project):
    with tenant(project.id):
        factories.make_policy()
        factories.make_turn("long", completion="x" * 1_048_576)
    html = page(as_owner, "session", session="long")
    assert len(html) < 200_000 and "1,047,376 more characters" in html and "not shown here" in html


@pytest.mark.parametrize("name", LISTS)
def test_a_list_asks_the_same_number_of_questions_at_1_and_20_rows(as_owner, project, name):
    with tenant(project.id):
        policy = factories.make_policy()
        first = factories.Checkpoint.objects.get()
    counts = []
    for start, rows in ((0, 1), (1, 20)):
        with tenant(project.id):
            for i in range(start, start + rows):
                turn = factories.make_turn(f"s{i}", user=f"u-{i}")
                factories.make_flag(turn)
                candidate = factories.make_checkpoint(policy, i + 2, first, state="candidate")
                run = factories.make_update(
                    policy, factories.make_batch(policy, [turn]), parent=first, version=i + 2, checkpoint=candidate,
                    state="held", steps=1,
                )  # fmt: skip
                factories.make_report(candidate, first, run=run)
        page(as_owner, name)  # the first visit writes the session
        with CaptureQueriesContext(connection) as queries:
            page(as_owner, name)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_session_asks_the_same_number_of_questions_for_1_and_20_turns(as_owner, project):
    with tenant(project.id):
        factories.make_policy()
    counts = []
    for start, rows in ((0, 1), (1, 20)):
        with tenant(project.id):
            for i in range(start, start + rows):
                factories.make_flag(factories.make_turn("s", index=i))
        page(as_owner, "session", session="s")
        with CaptureQueriesContext(connection) as queries:
            page(as_owner, "session", session="s")
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("preset", ["15m", "1h", "6h", "1d", "7d", "30d", "nonsense"])
def test_every_time_range_opens(as_owner, loop, preset):
    assert as_owner.get(f"/p/editor/overview?range={preset}").status_code == 200


def test_an_unknown_policy_is_not_found(as_owner, loop):
    assert as_owner.get("/p/editor/overview?policy=nope").status_code == 404
