from datetime import UTC, datetime, timedelta

import pytest

from rl_online.triggering import Rhythm, Situation, decide_trigger

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
