"""The default label recipe, row by row, and that arrival order never matters."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.labels import Heard, Recipe, Verdict, current, label_turn

AT = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
WINDOW = timedelta(seconds=120)
RECIPE = Recipe()


def heard(kind: str, seconds: float = 3, value: float | None = None, **fields) -> Heard:
    moment = AT + timedelta(seconds=seconds)
    return Heard(**{"id": f"{kind}{seconds}", "kind": kind, "at": moment, "value": value, "user": "u"} | fields)


def label(*signals: Heard, now: float = 10, closes: float | None = 120) -> Verdict | None:
    return label_turn(
        signals,
        at=AT,
        closes_at=None if closes is None else AT + timedelta(seconds=closes),
        now=AT + timedelta(seconds=now),
        recipe=RECIPE,
    )


def outcome(*signals: Heard, **options) -> tuple[str, float] | None:
    verdict = label(*signals, **options)
    return verdict and (verdict.outcome, verdict.value)


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ([heard("accept")], ("accept", 1)),
        ([heard("copy")], ("accept", 1)),
        ([heard("partial_accept", value=0.5)], ("accept", 0.5)),
        ([heard("partial_accept", value=0.25)], ("reject", -0.75)),
        ([heard("thumbs", value=1)], ("accept", 1)),
        ([heard("thumbs", value=-1)], ("reject", -1)),
        ([heard("edit")], ("accept", 0.5)),
        ([heard("reject")], ("reject", -1)),
        ([heard("undo")], ("reject", -1)),
        ([heard("correction")], ("reject", -0.5)),
        ([heard("retry", 30)], ("reject", -1)),
        ([heard("retry", 31)], None),
        ([heard("ignore")], ("silence", 0)),
        ([heard("abandon")], ("silence", 0)),
        ([heard("accept"), heard("persist", 60, value=0.5)], ("accept", 0.5)),
        ([heard("persist", 60, value=0.5)], None),
        ([heard("shown"), heard("comment"), heard("rating", value=5), heard("metric:x", value=1)], None),
        ([heard("preference"), heard("follow_up")], None),
        ([], None),
    ],
)
def test_each_row_of_the_table(signals, expected):
    assert outcome(*signals) == expected


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ([heard("accept", 1), heard("undo", 2)], ("reject", -1)),
        ([heard("undo", 1), heard("accept", 2)], ("accept", 1)),
        ([heard("accept", 1), heard("edit", 2)], ("accept", 0.5)),
        ([heard("edit", 1), heard("reject", 2), heard("accept", 3)], ("accept", 1)),
        ([heard("accept", 1), heard("ignore", 2)], ("accept", 1)),
        ([heard("copy", 1), heard("retry", 5)], ("reject", -1)),
        ([heard("copy", 1), heard("retry", 50)], ("accept", 1)),
        ([heard("reject", 5, id="b"), heard("accept", 5, id="a")], ("reject", -1)),  # same time: by id
    ],
)
def test_the_last_verdict_counts(signals, expected):
    assert outcome(*signals) == expected
    assert outcome(*reversed(signals)) == expected


def test_reasons_say_what_happened():
    assert label(heard("accept", 1), heard("undo", 2)).reason == "accepted, then undone"
    assert label(heard("accept", 1), heard("edit", 2)).reason == "accepted, edited"


def test_silence_settles_when_the_window_closes_and_not_before():
    assert outcome(heard("shown"), now=119.9) is None
    assert outcome(heard("shown"), now=120) == ("silence", 0)
    assert outcome(now=1e6, closes=None) is None


def test_a_late_signal_beats_the_silence_before_it():
    assert outcome(heard("accept", 5000), now=6000) == ("accept", 1)


def test_thumbs_up_up_down_by_one_person_is_one_down_and_two_superseded():
    thumbs = [heard("thumbs", 1, 1), heard("thumbs", 2, 1), heard("thumbs", 3, -1)]
    counted, superseded = current(thumbs)
    assert [signal.value for signal in counted] == [-1]
    assert len(superseded) == 2


def test_thumbs_of_two_people_both_count():
    counted, _ = current([heard("thumbs", 1, 1, user="a"), heard("thumbs", 2, -1, user="b")])
    assert len(counted) == 2


def test_a_superseded_signal_does_not_count():
    first, second = heard("accept", 1, id="a"), heard("reject", 0.5, id="b")
    assert outcome(first, second) == ("accept", 1)
    assert outcome(first, second, heard("shown", 2, supersedes="a")) == ("reject", -1)


def test_signals_that_supersede_themselves_or_each_other_leave_the_last():
    circle = [heard("accept", 1, id="a", supersedes="b"), heard("reject", 2, id="b", supersedes="a")]
    assert [signal.id for signal in current(circle)[0]] == ["b"]
    assert [signal.id for signal in current([heard("accept", id="a", supersedes="a")])[0]] == ["a"]


KINDS = ["shown", "ignore", "accept", "reject", "edit", "correction", "undo", "retry", "copy", "abandon"]
VALUED = [("partial_accept", 0.2), ("partial_accept", 0.8), ("persist", 0.4), ("thumbs", 1.0), ("thumbs", -1.0)]


@st.composite
def some_signals(draw) -> list[Heard]:
    picks = draw(st.lists(st.sampled_from([(kind, None) for kind in KINDS] + VALUED), max_size=7))
    return [
        heard(
            kind,
            draw(st.sampled_from([0, 1, 2, 31])),
            value,
            id=f"g{place}",
            user=draw(st.sampled_from([None, "a", "b"])),
            supersedes=draw(st.sampled_from([None, None, "g0", "g1", "g6"])),
        )
        for place, (kind, value) in enumerate(picks)
    ]


@given(some_signals(), st.randoms(use_true_random=False), st.sampled_from([10, 120]))
def test_the_order_of_arrival_never_matters(signals, shuffler: random.Random, now):
    shuffled = list(signals)
    shuffler.shuffle(shuffled)
    assert label(*shuffled, now=now) == label(*signals, now=now)


@given(some_signals())
def test_a_value_stays_within_its_outcome(signals):
    verdict = label(*signals, now=120)
    assert verdict is not None
    low, high = {"accept": (0, 1), "reject": (-1, 0), "silence": (0, 0)}[verdict.outcome]
    assert low <= verdict.value <= high


def test_the_digest_names_the_recipe():
    assert Recipe().digest == Recipe(partial_threshold=0.5).digest != Recipe(partial_threshold=0.6).digest
