"""Each rule on both sides of its limit, and when there is too little to tell."""

from datetime import UTC, datetime, timedelta

import pytest

from rl_online import alarms
from rl_online.alarms import Conduct, Finding, Rule, Verdict, Window

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RAISED, CALM, UNKNOWN = Verdict.RAISED, Verdict.CALM, Verdict.UNKNOWN


def window(low: float, high: float, *, turns: int = 100, name: str = "editor@2") -> Window:
    return Window(checkpoint=name, turns=turns, share=(low + high) / 2 if turns else None, low=low, high=high)


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (window(0.30, 0.40), window(0.41, 0.51), RAISED),
        (window(0.30, 0.41), window(0.41, 0.51), CALM),  # they touch
        (window(0.52, 0.60), window(0.41, 0.51), CALM),  # better
        (window(0.30, 0.40, turns=29), window(0.41, 0.51), UNKNOWN),
        (window(0.30, 0.40), window(0.41, 0.51, turns=29), UNKNOWN),
        (window(0.30, 0.40), None, UNKNOWN),
    ],
)
def test_a_drop_is_raised_only_where_the_intervals_are_apart(now, before, verdict):
    assert alarms.share_drop("editor", now=now, before=before).verdict is verdict


def test_a_drop_says_both_shares_with_interval_and_n():
    found = alarms.share_drop("editor", now=window(0.3, 0.4), before=window(0.45, 0.55, name="editor@1"))
    assert found.summary == (
        "Users accept 35.0% of editor@2 (30.0% to 40.0%, n 100); of editor@1, which served before, it was 50.0% "
        "(45.0% to 55.0%, n 100)"
    )


@pytest.mark.parametrize(
    ("quiet_minutes", "items", "verdict"),
    [
        (9, 14400, CALM),  # ten a minute, but not yet ten minutes
        (11, 14400, RAISED),
        (100, 144, CALM),  # one each ten minutes: 140 min may pass
        (141, 144, RAISED),
        (10_000, 49, UNKNOWN),  # too few to call silence unusual
    ],
)
def test_silence_is_far_longer_than_the_usual_gap(quiet_minutes, items, verdict):
    last_at = NOW - timedelta(minutes=quiet_minutes)
    assert alarms.silence(last_at=last_at, items_before=items, now=NOW).verdict is verdict


def test_a_project_that_never_heard_anything_is_not_silent():
    assert alarms.silence(last_at=None, items_before=0, now=NOW).verdict is UNKNOWN


@pytest.mark.parametrize(
    ("orphans", "signals", "verdict"), [(21, 100, RAISED), (20, 100, CALM), (0, 100, CALM), (49, 49, UNKNOWN)]
)
def test_orphans_are_raised_above_a_fifth(orphans, signals, verdict):
    assert alarms.orphans(num_orphans=orphans, num_signals=signals).verdict is verdict


@pytest.mark.parametrize(("wait_s", "verdict"), [(60, CALM), (61, RAISED)])
def test_labels_are_late_after_a_minute(wait_s, verdict):
    assert alarms.label_lag(wait_s=wait_s).verdict is verdict


def test_jobs_given_up_are_named_by_kind_and_by_the_newest():
    found = alarms.jobs_given_up(kinds=["feedback.label", "rl_online.prove", "feedback.label"], newest_id=9)
    assert (found.verdict, found.about) == (RAISED, "9")
    assert found.summary == "3 jobs were given up after five attempts: feedback.label, rl_online.prove"
    assert alarms.jobs_given_up(kinds=[], newest_id=None).verdict is CALM


def test_a_failed_update_says_the_last_line_of_its_error():
    found = alarms.update_failed(
        "editor", run_id="7", title="update to editor@4", error="Traceback\n  x\nNaN in loss\n"
    )
    assert found.summary == "The update to editor@4 failed: NaN in loss"
    assert alarms.update_failed("editor", run_id=None).verdict is CALM


@pytest.mark.parametrize(("num_engines", "minutes", "verdict"), [(1, 99, CALM), (0, 1.9, UNKNOWN), (0, 2, RAISED)])
def test_an_engine_has_two_minutes_to_hold_what_serves(num_engines, minutes, verdict):
    since = NOW - timedelta(minutes=minutes)
    found = alarms.engine_away("editor", serving="editor@2", num_engines=num_engines, since=since, now=NOW)
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("decisions", "verdict"),
    [
        (["hold"] * 3, RAISED),
        (["hold", "hold", "promote", "hold"], CALM),
        (["promote"] + ["hold"] * 5, CALM),
        ([], CALM),
    ],
)
def test_the_gate_keeps_holding_from_three_in_a_row(decisions, verdict):
    assert alarms.gate_held("editor", decisions=decisions, newest="editor@5").verdict is verdict


def test_a_pause_is_an_alarm_that_somebody_chose():
    found = alarms.paused("editor", is_paused=True, since=NOW)
    assert (found.verdict, found.rule.severity) == (RAISED, "info")
    assert alarms.paused("editor", is_paused=False).verdict is CALM


def test_every_rule_explains_itself():
    assert all(rule.heading and rule.meaning for rule in Rule)


# --- Closing ---


@pytest.mark.parametrize(
    ("verdict", "calm_minutes", "is_over"),
    [(CALM, 31, True), (CALM, 29, False), (UNKNOWN, 999, False), (RAISED, 999, False)],
)
def test_an_alarm_closes_after_its_rule_was_calm_for_a_while(verdict, calm_minutes, is_over):
    finding = Finding(rule=Rule.SHARE_DROP, verdict=verdict)
    assert alarms.is_over(finding, raised_at=NOW - timedelta(minutes=calm_minutes), now=NOW) is is_over


@pytest.mark.parametrize(("closed_about", "is_news"), [(None, True), ("a", False), ("b", True)])
def test_what_a_person_closed_is_no_news_until_it_happens_anew(closed_about, is_news):
    finding = Finding(rule=Rule.UPDATE_FAILED, verdict=RAISED, about="a")
    assert alarms.is_news(finding, closed_about=closed_about) is is_news


def conduct(value: float | None, *, name: str = "editor@2", turns: int = 200, half: float = 0.02) -> Conduct:
    middle = value or 0.0
    return Conduct(checkpoint=name, turns=turns, value=value, low=middle - half, high=middle + half)


def old(value: float | None, *, turns: int = 200, name: str = "editor@1") -> Conduct:
    return conduct(value, name=name, turns=turns)


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (conduct(0.16), [old(0.10)], RAISED),
        (conduct(0.15), [old(0.10)], CALM),  # five points are allowed
        (conduct(0.16, half=0.05), [old(0.10)], CALM),  # the intervals touch
        (conduct(0.04), [old(0.10)], CALM),  # fewer questions
        (conduct(0.14), [old(0.11), old(0.05, name="editor@0")], RAISED),  # small steps add up
        (conduct(0.16, turns=99), [old(0.10)], UNKNOWN),
        (conduct(0.16), [old(0.10, turns=99)], UNKNOWN),
        (conduct(None, turns=0), [old(0.10)], UNKNOWN),
        (conduct(0.16), [], UNKNOWN),
    ],
)
def test_a_share_drifts_when_it_is_shown_to_be_above_its_limit(now, before, verdict):
    assert alarms.drift(Rule.QUESTIONS, "editor", now=now, before=before).verdict is verdict


def test_invalid_tool_calls_may_rise_by_less_than_questions():
    risen = {"now": conduct(0.06, half=0.005), "before": [conduct(0.03, half=0.005)]}
    verdicts = [alarms.drift(rule, "editor", **risen).verdict for rule in (Rule.BAD_CALLS, Rule.QUESTIONS)]
    assert verdicts == [RAISED, CALM]


def test_a_drift_names_the_checkpoint_it_rose_from_most():
    found = alarms.drift(
        Rule.NO_EDIT, "editor", now=conduct(0.3), before=[old(0.2), old(0.1, name="editor@0", turns=500)]
    )
    assert found.summary == (
        "Answers without an edit: 30.0% of the turns of editor@2 (28.0% to 32.0%, n 200); with editor@0 it was 10.0% "
        "(8.0% to 12.0%, n 500)"
    )


@pytest.mark.parametrize(
    ("now", "verdict"), [(51, RAISED), (50, CALM), (30, CALM), (29, RAISED), (None, UNKNOWN)]
)  # of 40 before
def test_answers_that_grow_or_shrink_by_more_than_a_quarter_call_for_a_person(now, verdict):
    assert alarms.length("editor", now=conduct(now), before=[old(40)]).verdict is verdict
