from datetime import UTC, datetime, timedelta

import pytest

from rl_online.triggering import Rhythm, Situation, decide_trigger, foresee

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RHYTHM = Rhythm(every_turns=100, every_minutes=10, min_turns=20)


def situation(num_ready: int, *, waited: float = 0, **facts) -> Situation:
    return Situation(
        num_ready=num_ready,
        oldest_ready_at=NOW - timedelta(minutes=waited),
        last_update_at=None,
        is_paused=facts.get("is_paused", False),
        is_updating=facts.get("is_updating", False),
        now=NOW,
    )


@pytest.mark.parametrize(
    ("num_ready", "waited", "is_due"),
    [(100, 0, True), (99, 0, False), (99, 9.9, False), (20, 10, True), (19, 1000, False), (0, 0, False)],
)
def test_n_turns_or_t_minutes_with_enough_turns(num_ready, waited, is_due):
    assert decide_trigger(situation(num_ready, waited=waited), RHYTHM).is_due is is_due


def test_time_counts_from_the_last_update():
    recent = Situation(
        num_ready=50,
        oldest_ready_at=NOW - timedelta(hours=1),
        last_update_at=NOW - timedelta(minutes=1),
        is_paused=False,
        is_updating=False,
        now=NOW,
    )
    assert not decide_trigger(recent, RHYTHM).is_due


def test_without_minutes_only_the_count_triggers():
    assert not decide_trigger(
        situation(99, waited=10_000), Rhythm(every_turns=100, every_minutes=None, min_turns=1)
    ).is_due


@pytest.mark.parametrize("fact", ["is_paused", "is_updating"])
def test_nothing_starts_while_paused_or_while_an_update_is_open(fact):
    trigger = decide_trigger(situation(1000, **{fact: True}), RHYTHM)
    assert not trigger.is_due
    assert trigger.reason in ("learning is paused", "an update is under way")


# --- When the next one is likely ---


def outlook(num_ready: int, per_minute: float, rhythm: Rhythm = RHYTHM, *, waited: float = 0, **facts) -> tuple:
    found = foresee(situation(num_ready, waited=waited, **facts), rhythm, turns_per_minute=per_minute)
    return found.seconds, found.by


def test_by_count_it_is_as_far_as_the_missing_turns_take():
    # 83 of 384 turns, 50 a minute: 301 / 50 min
    rhythm = Rhythm(every_turns=384, every_minutes=None, min_turns=64)
    assert outlook(83, 50, rhythm) == (pytest.approx(361.2), "count")


@pytest.mark.parametrize(
    ("num_ready", "per_minute", "waited", "expected"),
    [
        (100, 0, 0, (0, "count")),  # due
        (50, 1, 4, (360, "time")),  # 6 min are left of 10, 50 turns would take 50 min
        (50, 0, 4, (360, "time")),  # nothing comes in, time alone decides
        (10, 1, 9, (600, "time")),  # 10 more turns for the least there must be
        (10, 0, 9, (None, "")),  # never enough
    ],
)
def test_the_earlier_of_count_and_time_is_foreseen(num_ready, per_minute, waited, expected):
    assert outlook(num_ready, per_minute, waited=waited) == expected


def test_nothing_is_foreseen_while_paused_or_under_way():
    assert outlook(99, 5, is_paused=True) == outlook(99, 5, is_updating=True) == (None, "")
