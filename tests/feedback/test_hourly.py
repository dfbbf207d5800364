"""Reads over time: hours and rows say the same, users are clusters over all their hours, unknown is not zero."""

from datetime import UTC, datetime, timedelta

import pytest

from feedback import hourly, selectors
from feedback.hourly import Origin, Span
from feedback.intervals import Cluster, share_bounds
from feedback.services import label, rollups
from feedback.services.record import record_items
from feedback.wire import SignalItem, TurnItem, Usage
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
DAY = timedelta(days=1)
WHOLE = Span.of(NOW - DAY, NOW + DAY, DAY)


def judged(id: str, kind: str | None, *, hours: float = 0, **fields) -> list:
    at = NOW + timedelta(hours=hours)
    turn = TurnItem(id=id, session="s", at=at, prompt="p", completion="c", **{"checkpoint": "editor@2"} | fields)
    return [turn] if kind is None else [turn, SignalItem(id=f"{id}-{kind}", kind=kind, turn=id, at=at)]


@pytest.fixture
def record(project):
    def do(*turns: list):
        items = [item for turn in turns for item in turn]
        record_items(project.id, items, received_at=NOW)
        with tenant(project.id):
            label.label_turns(project.id, [item.id for item in items], now=NOW)
            rollups.count_all_dirty(project.id)

    return do


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield project


def test_a_span_below_an_hour_a_bar_is_itself_and_any_other_is_whole_hours():
    fine = Span.of(NOW + timedelta(minutes=7), NOW + timedelta(minutes=67), timedelta(minutes=5))
    assert (fine.start.minute, fine.is_fine, len(fine.starts)) == (7, True, 13)
    coarse = Span.of(NOW - timedelta(minutes=7), NOW + timedelta(hours=23), timedelta(minutes=15))
    assert (coarse.start.hour, coarse.end, coarse.bucket) == (5, NOW + timedelta(hours=23), timedelta(hours=1))
    assert len(coarse.starts) == 24 and not coarse.is_fine


def test_hours_and_rows_give_the_same_shares_and_signals(record, inside):
    record(
        judged("a", "accept", user="u1"), judged("b", "reject", hours=0.5, user="u1"), judged("c", "ignore", hours=2),
        judged("d", "accept", hours=1.9, checkpoint="editor@3"), judged("e", "accept", model="gpt", checkpoint=None),
        judged("open", None), judged("measured", "accept", source="eval"),
    )  # fmt: skip
    hours = Span.of(NOW, NOW + timedelta(hours=4), timedelta(hours=1))
    rows = Span(start=hours.start, end=hours.end, bucket=hours.bucket, is_fine=True)
    assert hourly.shares(hours) == hourly.shares(rows) != []
    assert hourly.shares(hours, policy="editor") == hourly.shares(rows, policy="editor")
    assert hourly.signals(hours) == hourly.signals(rows) != []
    assert hourly.signals(hours, policy="editor") == hourly.signals(rows, policy="editor")


def test_the_shares_of_some_versions_are_theirs_among_all(record, inside):
    record(
        *[
            judged(f"t{place}", "reject" if place % 3 else "accept", hours=place / 4, user=f"u{place % 3}",
                   checkpoint=f"editor@{1 + place % 4}")
            for place in range(24)
        ],
        judged("open", None, checkpoint="editor@9"),
    )  # fmt: skip
    hours = Span.of(NOW, NOW + timedelta(hours=7), timedelta(hours=2))
    assert hourly.versions(hours, policy="editor") == [4, 3, 2, 1]
    for span in (hours, Span(start=hours.start, end=hours.end, bucket=hours.bucket, is_fine=True)):
        for is_divided in (True, False):
            every = hourly.shares(span, policy="editor", is_divided=is_divided)
            some = hourly.shares(span, policy="editor", versions=[4, 2], is_divided=is_divided)
            assert some == [share for share in every if share.origin.version in (2, 4)] != []
            assert every == hourly.shares(span, is_divided=is_divided)


def test_a_user_with_turns_in_several_hours_is_one_cluster(record, inside):
    record(*[judged(f"t{hour}", "accept" if hour % 2 else "reject", hours=hour, user="u") for hour in range(4)])
    (share,) = hourly.shares(WHOLE, is_divided=False)
    assert share.bounds == share_bounds([Cluster(turns=4, accepted=2)])
    assert share.bounds.interval == "wilson_clustered"


def test_the_shares_of_a_range_are_those_of_the_report(record, inside):
    record(
        *[
            judged(
                f"t{place}", ("accept", "reject", "ignore")[place % 3], hours=place / 3,
                user=None if place % 5 == 0 else f"u{place % 4}", checkpoint=f"editor@{1 + place % 2}",
            )
            for place in range(40)
        ]
    )  # fmt: skip
    report = {group.key: group for group in selectors.accept_share(by="checkpoint", source="production")}
    for share in hourly.shares(WHOLE, is_divided=False):
        group = report[str(share.origin)]
        assert (share.turns, share.moments.accepted) == (group.turns, group.accepted)
        assert (share.bounds.low, share.bounds.high) == (group.low, group.high)


def test_three_users_with_ten_turns_each_are_three_users(record, inside):  # langfuse#10405, #13417
    record(
        *[judged(f"t{user}-{place}", None, user=f"u{user}", hours=place) for user in range(3) for place in range(10)]
    )
    record(judged("nobody", None))
    assert hourly.users(WHOLE) == hourly.Users(num=3, turns_of_nobody=1)
    assert hourly.counts(WHOLE).turns == 31


def test_one_signal_on_each_level_is_counted_once(record, project, inside):  # phoenix#14347
    record(judged("a", "accept"))
    at_session = SignalItem(id="of session", kind="thumbs", session="s", value=1, at=NOW)
    orphan = SignalItem(id="orphan", kind="reject", turn="?", at=NOW)
    record_items(project.id, [at_session, orphan], received_at=NOW)
    rollups.count_all_dirty(project.id)
    assert {kind: number for _, kind, number in hourly.signals(WHOLE)} == {"accept": 1, "reject": 1, "thumbs": 1}
    assert {kind: number for _, kind, number in hourly.signals(WHOLE, policy="editor")} == {"accept": 1}


def test_a_superseded_signal_counts_only_by_what_replaced_it(record, project, inside):  # mlflow#24132
    record(judged("a", "accept"))
    take_back = SignalItem(id="b", kind="reject", turn="a", at=NOW + timedelta(seconds=9), supersedes="a-accept")
    record_items(project.id, [take_back], received_at=NOW)
    label.label_turns(project.id, ["a"], now=NOW)
    rollups.count_all_dirty(project.id)
    counts = hourly.counts(WHOLE)
    assert (counts.settled, counts.accepted, counts.rejected) == (1, 0, 1)


def test_outcomes_add_up_to_the_settled_turns(record, inside):
    record(judged("a", "accept"), judged("b", "reject"), judged("c", "ignore"), judged("d", None))
    counts = hourly.counts(WHOLE, policy="editor")
    assert (counts.turns, counts.shown, counts.settled) == (4, 4, 3)
    assert counts.accepted + counts.rejected + counts.silent + counts.unknown == counts.settled


def test_tokens_of_turns_without_usage_are_not_zero_but_counted_apart(record, inside):
    record(
        judged("a", None, usage=Usage(input=20, cache_read=80, output=10)), judged("b", None),
    )  # fmt: skip
    counts = hourly.counts(WHOLE)
    assert (counts.turns, counts.with_usage, counts.input_tokens, counts.cache_read_tokens) == (2, 1, 20, 80)


def test_counts_are_kept_apart_for_every_origin(record, inside):
    record(judged("a", "accept"), judged("b", None, checkpoint=None, model="gpt"), judged("c", None, checkpoint=None))
    found = {str(origin): counts.turns for origin, counts in hourly.counts_by_origin(WHOLE).items()}
    assert found == {"editor@2": 1, "gpt": 1, "unknown origin": 1}
    assert Origin(policy="editor", version=2) in hourly.counts_by_origin(WHOLE)


def test_latencies_are_read_from_the_histogram(record, inside):
    record(*[judged(f"t{ms}", None, latency_ms=ms) for ms in (100.0, 200.0, 400.0)])
    assert hourly.latency_quantile(WHOLE, 0.5) == pytest.approx(200, rel=0.05)
    assert hourly.latency_quantile(WHOLE, 0.5, measure="ttft") is None


def test_reads_are_one_query_each_whatever_the_number_of_rows(record, inside, django_assert_num_queries):
    record(*[judged(f"t{place}", "accept", hours=place / 10, user=f"u{place}") for place in range(100)])
    with django_assert_num_queries(4):
        hourly.shares(WHOLE)
        hourly.signals(WHOLE)
        hourly.counts(WHOLE)
        hourly.users(WHOLE)


def test_another_projects_numbers_are_not_seen(record, other_project):
    record(judged("a", "accept"))
    with tenant(other_project.id):
        assert hourly.shares(WHOLE) == hourly.signals(WHOLE) == []
        assert hourly.counts(WHOLE).turns == 0
