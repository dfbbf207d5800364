"""Reads: accept shares by every key, within their tenant and time."""

from datetime import UTC, datetime, timedelta

import pytest

from feedback import selectors
from feedback.services import label
from feedback.services.record import record_items
from feedback.wire import Refusal, SignalItem, TurnItem
from registry.errors import InvalidInput
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


def judged(id: str, kind: str | None, *, minutes: float = 0, **fields) -> list:
    """A turn and, with a kind, what its user did."""
    at = NOW + timedelta(minutes=minutes)
    turn = TurnItem(id=id, session="s", at=at, prompt="p", completion="c", **fields)
    return [turn] if kind is None else [turn, SignalItem(id=f"{id}-{kind}", kind=kind, turn=id, at=at)]


@pytest.fixture
def record(project):
    def do(*turns: list, to=project):
        items = [item for turn in turns for item in turn]
        record_items(to.id, items, received_at=NOW)
        with tenant(to.id):
            label.label_turns(to.id, [item.id for item in items], now=NOW)

    return do


def groups(project, **options) -> dict:
    with tenant(project.id):
        found = selectors.accept_share(**options)
    return {group.key: (group.accepted, group.turns, group.interval) for group in found}


def test_by_checkpoint_counts_settled_shown_turns_in_order_of_version(record, project, other_project):
    record(
        judged("a", "accept", checkpoint="editor@10", user="u1"),
        judged("b", "reject", checkpoint="editor@2", user="u1"),
        judged("c", "ignore", checkpoint="editor@2", user="u2"),
        judged("d", "accept", checkpoint="editor@2", user="u3"),
        judged("open", None, checkpoint="editor@2", user="u4"),
        judged("measured", "accept", checkpoint="editor@2", user="u5", source="eval"),
        judged("other model", "accept", model="gpt"),
    )
    record(judged("a", "reject", checkpoint="editor@10"), to=other_project)
    assert list(groups(project).items()) == [("editor@2", (1, 3, "wilson")), ("editor@10", (1, 1, "wilson"))]


def test_by_user_and_surface_name_the_turns_without_one_too(record, project):
    record(judged("a", "accept", user="u", surface="chat"), judged("b", "reject"))
    assert groups(project, by="user") == {None: (0, 1, "wilson"), "u": (1, 1, "wilson")}
    assert groups(project, by="surface") == {None: (0, 1, "wilson"), "chat": (1, 1, "wilson")}


def test_users_with_several_turns_make_the_interval_clustered(record, project):
    record(judged("a", "accept", model="m", user="u"), judged("b", "accept", model="m", user="u"))
    assert groups(project, by="model") == {"m": (2, 2, "wilson_clustered")}


def test_source_and_time_narrow(record, project):
    record(
        judged("a", "accept", model="m"),
        judged("b", "accept", model="m", source="import"),
        judged("c", "accept", model="m", minutes=10),
    )
    assert groups(project, by="model", source="import") == {"m": (1, 1, "wilson")}
    assert groups(project, by="model", since=NOW + timedelta(minutes=1)) == {"m": (1, 1, "wilson")}
    assert groups(project, by="model", until=NOW + timedelta(minutes=1)) == {"m": (2, 2, "wilson")}


def test_an_unknown_grouping_is_refused(project):
    with tenant(project.id), pytest.raises(InvalidInput):
        selectors.accept_share(by="colour")


def test_one_query_whatever_the_number_of_groups(record, project, django_assert_num_queries):
    record(*[judged(f"t{place}", "accept", model=f"m{place}") for place in range(20)])
    with tenant(project.id), django_assert_num_queries(1):
        assert len(selectors.accept_share(by="model")) == 20


def test_signals_are_counted_by_minute_and_kind(record, project):
    record(judged("a", "accept"), judged("b", "accept", minutes=0.5), judged("c", "reject", minutes=1))
    with tenant(project.id):
        assert selectors.signals_per_minute(since=NOW, until=NOW + timedelta(hours=1)) == [
            (NOW, "accept", 2),
            (NOW + timedelta(minutes=1), "reject", 1),
        ]


def test_what_was_received_adds_up(record, project):
    refusal = Refusal(id="x", outcome="too_old", field="at", message="")
    record(judged("a", "accept"), judged("a", "accept"))
    record_items(project.id, [refusal, SignalItem(id="waits", kind="accept", turn="?", at=NOW)], received_at=NOW)
    with tenant(project.id):
        assert selectors.ingestion_outcomes(since=NOW) == {"accepted": 3, "duplicate": 2, "too_old": 1}
        assert selectors.num_orphans() == 1
