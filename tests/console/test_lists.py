"""The lists of sessions, turns and signals: what the bar finds, pages, facets, columns, views, ticked rows."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console import listing
from console.views import lists
from feedback.models import Flag, Turn, UserSignal
from registry.models import SavedView
from registry.tenancy import tenant
from tests.console import factories

LISTS = ("sessions", "turns", "signals")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202egnp.exe\u200b{{ 7|add:7 }}"
VALUE = re.compile(r'value="[^"]*"')


@pytest.fixture
def talk(project):
    """Three sessions: accepted by u-1, rejected and edited by u 2, unsettled from another model."""
    with tenant(project.id):
        factories.make_policy()
        factories.make_turn("s-accept", user="u-1", completion="return off by one")
        factories.make_turn(
            "s-reject", user="u 2", version=2, outcome="reject", signals=("shown", "reject"), edited_to="no",
            latency_ms=900.0, surface="chat", finish_reason="length",
        )  # fmt: skip
        factories.make_turn(
            "s-open", user=None, version=None, model="gpt-x", outcome=None, signals=(), latency_ms=None,
            source="import",
        )  # fmt: skip
        factories.make_flag(Turn.objects.get(session__session_id="s-reject"))
        now = timezone.now()
        UserSignal.objects.create(signal_id="waits", turn_ref="never-came", kind="accept", at=now)
        UserSignal.objects.create(signal_id="too-late", turn_ref="gone", kind="undo", at=now, expired_at=now)
        UserSignal.objects.create(signal_id="whole", session_ref="s-open", kind="rating", value=0.0, at=now)
    return project


def ask(client, name, query="", **params):
    return client.get(f"/p/editor/{name}", {"q": query, **params})


def found(client, name, query="", **params):
    """Names of the rows that were found: sessions, or the session of a turn, or the id of a signal."""
    rows = ask(client, name, query, **params).context["rows"]
    if name == "sessions":
        return {row.session.session_id for row in rows}
    if name == "turns":
        return {row.turn.session.session_id for row in rows}
    return {row["signal"].signal_id if not row["signal"].turn else row["signal"].kind for row in rows}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"s-accept", "s-reject", "s-open"}),
        ("outcome:accept", {"s-accept"}),
        ("outcome:accept,reject", {"s-accept", "s-reject"}),
        ("outcome:unsettled", {"s-open"}),
        ("-outcome:accept", {"s-reject", "s-open"}),
        ("has:outcome", {"s-accept", "s-reject"}),
        ("checkpoint:editor@2", {"s-reject"}),
        ("checkpoint:editor@*", {"s-accept", "s-reject"}),
        ("checkpoint:gpt-x", {"s-open"}),
        ("model:gpt-x", {"s-open"}),
        ("-has:checkpoint", {"s-open"}),
        ('user:"u 2"', {"s-reject"}),
        ("user:u*", {"s-accept", "s-reject"}),
        ("-has:user", {"s-open"}),
        ("latency_ms:>500", {"s-reject"}),
        ("latency_ms:100..200", {"s-accept"}),
        ("has:latency_ms", {"s-accept", "s-reject"}),
        ("signal:edit", {"s-reject"}),
        ("-has:signal", {"s-open"}),
        ("flagged:open", {"s-reject"}),
        ("-flagged:any", {"s-accept", "s-open"}),
        ("rule:tests_disagree", {"s-reject"}),
        ("source:import", {"s-open"}),
        ("finish:length", {"s-reject"}),
        ("logprobs:no", {"s-open"}),
        ("learned:yes", set()),
        ('"off by one"', {"s-accept"}),
        ("outcome:reject source:import", set()),
    ],
)
@pytest.mark.parametrize("name", ["turns", "sessions"])
def test_the_bar_finds_turns_and_the_sessions_that_have_one(as_owner, talk, name, query, expected):
    assert found(as_owner, name, query) == expected


def test_one_turn_of_a_session_must_meet_everything_asked(as_owner, talk, project):
    with tenant(project.id):
        factories.make_turn("s-accept", index=1, user="u-1", outcome="reject", signals=("reject",), surface="chat")
    assert found(as_owner, "sessions", "outcome:accept latency_ms:<200") == {"s-accept"}
    assert found(as_owner, "sessions", "outcome:reject finish:length") == {"s-reject"}


def test_a_session_is_left_out_when_any_of_its_turns_is_what_was_excluded(as_owner, talk, project):
    with tenant(project.id):
        factories.make_turn("s-accept", index=1, user="u-1", outcome="reject", signals=("reject",))
    assert "s-accept" not in found(as_owner, "sessions", "-outcome:reject")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state:waiting", {"waits"}),
        ("state:expired", {"too-late"}),
        ("state:session", {"whole"}),
        ("state:joined", {"accept", "shown", "reject", "edit"}),
        ("kind:edit", {"edit"}),
        ("value:0", {"whole"}),
        ("session:s-reject", {"shown", "reject", "edit"}),
        ("session:s-open", {"whole"}),
        ("checkpoint:editor@2", {"shown", "reject", "edit"}),
        ("outcome:reject", {"shown", "reject", "edit"}),
        ('"no"', {"edit"}),
        ("signal:waits", {"waits"}),
    ],
)
def test_the_bar_finds_signals(as_owner, talk, query, expected):
    assert found(as_owner, "signals", query) == expected


@pytest.mark.parametrize("name", LISTS)
def test_a_wrong_word_is_named_and_no_row_is_shown_for_it(as_owner, talk, name):
    response = ask(as_owner, name, "colour:red")
    html = response.content.decode()
    assert "no field &#x27;colour&#x27; here; known are" in html and response.context["rows"] == []
    assert 'value="colour:red"' in html


def test_a_link_may_name_a_field_itself(as_owner, talk):
    response = as_owner.get("/p/editor/turns?outcome=reject&checkpoint=editor@2")
    assert response.context["asked"].query.text == "outcome:reject checkpoint:editor@2"


def test_rows_outside_the_time_range_are_not_listed_and_the_page_says_how_old_the_newest_is(as_owner, project):
    with tenant(project.id):
        factories.make_turn("old", at=timezone.now() - timedelta(days=40))
    html = ask(as_owner, "turns", range="7d").content.decode()
    assert "No turn matches" in html and "40 d ago" in html
    assert found(as_owner, "turns", range="90d") == {"old"}


def test_a_search_that_takes_too_long_is_stopped_and_said(as_owner, talk, monkeypatch):
    def search(asked):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")

    monkeypatch.setattr(listing, "PATIENCE_S", 0.05)
    monkeypatch.setattr(lists, "TURNS", replace(lists.TURNS, find=search))
    html = ask(as_owner, "turns").content.decode()
    assert "This search was stopped" in html and "choose a shorter time range" in html


# --- Pages ---


def walk(client, name, direction, start):
    """Pages from `start` on, each as the list of its rows' keys."""
    pages, link = [], start
    while link is not None:
        context = client.get(f"/p/editor/{name}{link}").context
        pages.append([key(row) for row in context["rows"]])
        link = getattr(context["found"], direction)
    return pages, context


def key(row):
    return row.turn.turn_id if hasattr(row, "turn") else row.session.session_id


@pytest.mark.parametrize("name", ["sessions", "turns"])
def test_pages_show_every_row_once_also_where_times_are_the_same(as_owner, project, name):
    at = timezone.now() - timedelta(minutes=5)
    with tenant(project.id):
        for i in range(110):
            factories.make_turn(f"s{i:03d}", at=at - timedelta(seconds=i // 40), outcome=None, signals=())
    older, last = walk(as_owner, name, "older", "?range=1d")
    rows = [row for page in older for row in page]
    assert [len(page) for page in older] == [50, 50, 10] and len(set(rows)) == 110
    newer, _ = walk(as_owner, name, "newer", last["found"].newer)
    assert [row for page in reversed(newer) for row in page] == rows[:100]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("-latency_ms", [900, 182, 182]), ("latency_ms", [182, 182, 900]), ("-nope", None), ("", None)],
)
def test_rows_are_ordered_by_a_column_and_those_without_it_are_left_out(as_owner, talk, project, sort, expected):
    with tenant(project.id):
        factories.make_turn("s-more")
    rows = [row.turn.latency_ms for row in ask(as_owner, "turns", sort=sort).context["rows"]]
    assert rows == expected if expected else len(rows) == 4


@pytest.mark.parametrize("sort", ["-output_tokens", "output_tokens", "at"])
def test_pages_of_another_order_show_every_row_once_too(as_owner, project, sort):
    with tenant(project.id):
        for i in range(60):
            factories.make_turn(f"s{i:03d}", outcome=None, signals=(), output_tokens=i // 7)
    older, last = walk(as_owner, "turns", "older", f"?range=1d&sort={sort}")
    rows = [row for page in older for row in page]
    assert [len(page) for page in older] == [50, 10] and len(set(rows)) == 60
    newer, _ = walk(as_owner, "turns", "newer", last["found"].newer)
    assert newer == [rows[:50]]


def test_a_header_orders_then_turns_round_then_lets_go(as_owner, talk):
    def header(sort):
        return next(
            h for h in ask(as_owner, "turns", sort=sort).context["asked"].headers if h.column.name == "latency_ms"
        )

    assert (header("").sorted, header("-latency_ms").sorted, header("latency_ms").sorted) == (
        "none", "descending", "ascending",
    )  # fmt: skip
    assert "sort=-latency_ms" in header("").link and "sort=latency_ms" in header("-latency_ms").link
    assert "sort" not in header("latency_ms").link


@pytest.mark.parametrize("place", ["x", "2026-11-30T06:00:00~5", "2026-11-30T06:00:00+00:00~x", "~", "a~-1"])
def test_a_place_that_is_none_is_said(as_owner, talk, place):
    assert "is no place in this list" in ask(as_owner, "turns", before=place).content.decode()


def test_the_count_is_bounded(as_owner, talk, monkeypatch):
    monkeypatch.setattr(listing, "COUNT_LIMIT", 2)
    assert "3 of more than 2 turns" in ask(as_owner, "turns").content.decode()


# --- Facets, columns, queries ---


def facets(client, name, query=""):
    response = client.get(f"/p/editor/{name}", {"q": query, "part": "facets"})
    assert "<html" not in response.content.decode()
    return {one.name: {value.title: value.count for value in one.values} for one in response.context["facets"]}


def test_facets_count_what_matches_everything_but_their_own_field(as_owner, talk):
    assert facets(as_owner, "turns")["outcome"] == {"accept": 1, "reject": 1, "unsettled": 1}
    narrowed = facets(as_owner, "turns", "outcome:reject")
    assert narrowed["outcome"] == {"accept": 1, "reject": 1, "unsettled": 1} and narrowed["surface"] == {"chat": 1}


def test_a_facet_of_sessions_counts_sessions_not_turns(as_owner, talk, project):
    with tenant(project.id):
        factories.make_turn("s-accept", index=1, user="u-1")
    assert facets(as_owner, "sessions")["outcome"] == {"accept": 1, "reject": 1, "unsettled": 1}


def test_a_facets_link_switches_its_value(as_owner, talk):
    response = as_owner.get("/p/editor/turns", {"q": "outcome:reject user:u*", "part": "facets", "range": "1d"})
    values = {value.title: value for one in response.context["facets"] for value in one.values}
    assert values["reject"].is_on and "outcome" not in values["reject"].link
    assert "outcome%3Areject%2Caccept" in values["accept"].link and "range=1d" in values["accept"].link


@pytest.mark.parametrize("name", LISTS)
def test_every_column_can_be_shown(as_owner, talk, name):
    kind = ask(as_owner, name).context["listing"]
    html = ask(as_owner, name, columns=",".join(column.name for column in kind.columns)).content.decode()
    assert html.count("<th") - html.count("<thead") - 1 >= len(kind.columns) - 1
    assert all(column.title in html for column in kind.columns)


def test_unknown_columns_leave_the_usual_ones(as_owner, talk):
    assert ask(as_owner, "turns", columns="nope").context["shown"] == ask(as_owner, "turns").context["shown"]


@pytest.mark.parametrize("part", ["", "facets"])
@pytest.mark.parametrize("name", LISTS)
def test_a_list_asks_the_same_number_of_questions_at_1_and_100_rows(as_owner, project, name, part):
    with tenant(project.id):
        factories.make_policy()
    counts = []
    for start, rows in ((0, 1), (1, 100)):
        with tenant(project.id):
            for i in range(start, start + rows):
                factories.make_flag(factories.make_turn(f"s{i}", user=f"u-{i}", version=1 + i % 5))
        ask(as_owner, name, part=part)
        with CaptureQueriesContext(connection) as queries:
            response = ask(as_owner, name, "user:u* outcome:accept", part=part)
        assert response.status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] and counts[1] < 40


@pytest.mark.parametrize("name", LISTS)
def test_hostile_text_is_shown_as_text(as_owner, project, name):
    with tenant(project.id):
        factories.make_policy()
        turn = factories.make_turn(
            "a/b ?#<x>", completion=HOSTILE, asked=HOSTILE, user=HOSTILE[:100], surface=HOSTILE[:60], version=None,
            edited_to=HOSTILE, model=HOSTILE[:80], finish_reason=HOSTILE[:40],
        )  # fmt: skip
        factories.make_signal(turn, "metric:" + HOSTILE[:60], at=turn.at, text=HOSTILE)
    for part in ("", "facets"):
        html = ask(as_owner, name, part=part).content.decode()
        assert "<script>alert" not in html and "<img src=x" not in html
        assert "\u202e" not in VALUE.sub("", html)


def test_a_turn_without_its_text_is_still_listed(as_owner, project):
    with tenant(project.id):
        turn = factories.make_turn("s")
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM feedback_turnpayload WHERE turn_id = %s", [turn.turn_id])
    assert "not kept" in ask(as_owner, "turns").content.decode()


# --- Views and ticked rows ---


def test_a_saved_view_opens_what_was_shown(as_owner, talk):
    url = reverse("console:view-save", args=["editor"])
    back = as_owner.post(
        url, {"page": "turns", "name": "rejected", "query": "q=outcome%3Areject&columns=at,user&before=x&range=30d"}
    )
    assert back.url == "/p/editor/turns?q=outcome%3Areject&columns=at%2Cuser&range=30d"
    html = as_owner.get(back.url).content.decode()
    assert "Saved as rejected." in html and "q=outcome%3Areject&amp;columns=at%2Cuser&amp;range=30d" in html


def test_a_view_of_a_page_that_does_not_exist_is_not_saved(as_owner, talk, project):
    assert as_owner.post("/p/editor/views/save", {"page": "nope", "name": "x"}).status_code == 404
    with tenant(project.id):
        assert not SavedView.objects.exists()


def test_ticked_turns_are_flagged_once_and_the_toast_leads_to_them(client, reviewer, talk, project):
    client.force_login(reviewer)
    with tenant(project.id):
        turns = list(Turn.objects.values_list("turn_id", flat=True))
    sent = {"list": "turns", "pick": turns, "reason": "odd", "query": "q=has%3Auser"}
    response = client.post("/p/editor/flagged/raise", sent, follow=True)
    html = response.content.decode()
    assert response.redirect_chain[0][0] == "/p/editor/turns?q=has%3Auser"
    assert "3 flagged for review." in html and '<a href="/p/editor/flagged">See them</a>' in html
    html = client.post("/p/editor/flagged/raise", sent | {"pick": [*turns, "gone"]}, follow=True).content.decode()
    assert "0 flagged for review, 4 waited already or are gone." in html
    with tenant(project.id):
        assert Flag.objects.filter(rule="by_hand", raised_by="reviewer").count() == 3


def test_of_ticked_sessions_the_newest_turn_is_flagged(client, reviewer, talk, project):
    client.force_login(reviewer)
    with tenant(project.id):
        newest = factories.make_turn("s-accept", index=1, user="u-1")
    client.post("/p/editor/flagged/raise", {"list": "sessions", "pick": ["s-accept"], "reason": ""})
    with tenant(project.id):
        assert Flag.objects.get(rule="by_hand").turn_id == newest.pk


def test_nothing_ticked_is_said(client, reviewer, talk):
    client.force_login(reviewer)
    html = client.post("/p/editor/flagged/raise", {"list": "turns"}, follow=True).content.decode()
    assert "0 rows are ticked; tick 1 to 200" in html


def test_a_viewer_has_no_boxes_to_tick(client, viewer, talk):
    client.force_login(viewer)
    assert "data-pick" not in ask(client, "turns").content.decode()


# --- The frame ---


@pytest.mark.parametrize("name", ["sessions", "overview", "checkpoints"])
def test_a_peek_is_the_content_alone(as_owner, loop, name):
    html = as_owner.get(f"/p/editor/{name}?peek=1").content.decode()
    assert "<html" not in html and "navbar" not in html and "peek-content" in html


def test_times_are_written_in_the_zone_of_the_address(as_owner, talk):
    html = ask(as_owner, "turns", tz="Asia/Tokyo").content.decode()
    assert "Asia/Tokyo</footer>" in html or "times in Asia/Tokyo" in html
    assert re.search(r'title="\d{4}-\d\d-\d\d [\d:.]+ Asia/Tokyo"', html)


def test_the_footer_names_the_request(as_owner, talk):
    response = ask(as_owner, "turns")
    assert response["x-request-id"] in response.content.decode()


def test_the_sidebar_shows_only_places_that_exist(as_owner, loop):
    html = as_owner.get("/p/editor/overview").content.decode()
    assert html.count("data-go=") == html.count('class="nav-link"') and 'data-go="o"' in html
