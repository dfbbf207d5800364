"""The canary's gate on hand-worked arms, and under continuous peeking on simulated streams."""

import json
from itertools import pairwise

import numpy as np
import pytest

from rl_online.gate.decision import Kind
from rl_online.live_gate import GUARDS, GuardLimit, LiveEvidence, LiveLimits, User, decide_live

ERRORS = GuardLimit(name="error share", at_most=0.02, scale=0.02)
PLAIN = LiveLimits(guards=())


def users(shares, *, before=None, **guards):
    known = [None] * len(shares) if before is None else before
    return [
        User(
            accept_share=share,
            accept_share_before=known[place],
            guards={name.replace("_", " "): values[place] for name, values in guards.items()},
        )
        for place, share in enumerate(shares)
    ]


def shown(new, old, limits=PLAIN, **changes):
    seen = {"canary": "editor@3", "serving": "editor@2", "share": 0.1, "days": 1.0, "num_crossed": 0} | changes
    return decide_live(LiveEvidence(new=new, old=old, **seen), limits)


def spread(middle, n, width=0.2):
    """n shares around `middle` whose mean is exactly that."""
    return list(np.linspace(middle - width, middle + width, n))


def test_the_interval_is_the_one_worked_by_hand():
    # 100 users in each arm, +-.2 evenly spread: variance .4^2/12 * 101/99 * 100/99; se^2 = 2 var / 100
    decision = shown(users(spread(0.5, 100)), users(spread(0.5, 100)))
    square = 2 * (0.4**2 / 12 * 101 / 99 * 100 / 99) / 100
    tau = 0.05
    half = np.sqrt(square * (square + tau**2) / tau**2 * (2 * np.log(1 / 0.05) + np.log1p(tau**2 / square)))
    found = decision.findings[0].difference
    assert found.value == pytest.approx(0, abs=1e-12)
    assert (found.low, found.high) == (pytest.approx(-half), pytest.approx(half))
    assert found.interval == "confidence sequence"


def test_the_same_on_both_sides_is_extended_until_enough_users_rule_the_loss_out():
    assert shown(users(spread(0.5, 60)), users(spread(0.5, 60))).kind is Kind.EXTEND
    decision = shown(users(spread(0.5, 2000)), users(spread(0.5, 2000)))
    assert decision.kind is Kind.PROMOTE
    assert "a loss of 5.0 points is ruled out" in decision.reasons[0]


def test_a_shown_loss_rolls_back_however_small_the_margin_would_allow():
    decision = shown(users(spread(0.46, 4000)), users(spread(0.5, 4000)))
    assert decision.kind is Kind.ROLL_BACK
    assert "accept less" in decision.reasons[0] and decision.reasons[0].startswith("accept share: −4.0 points [")


def test_too_few_users_are_not_known_and_never_zero():
    decision = shown(users([1.0] * 3), users([0.0] * 3))
    assert decision.kind is Kind.EXTEND
    assert decision.findings[0].difference.low is None and decision.findings[0].p_value is None
    assert decision.reasons == (
        "accept share: not known yet, 3 users of the canary and 3 others; 50 of each are needed",
    )


def test_nobody_at_all_is_extended():
    decision = shown([], [])
    assert (decision.kind, decision.findings[0].mean_new) == (Kind.EXTEND, None)


def test_after_the_time_allowed_it_is_held():
    decision = shown(users(spread(0.5, 60)), users(spread(0.5, 60)), days=14.0)
    assert decision.kind is Kind.HOLD
    assert decision.reasons[-1] == "not shown within 14 days, which is the limit"


def test_what_was_known_before_narrows_the_interval():
    draw = np.random.default_rng(3)
    own = draw.uniform(0.2, 0.8, 400)
    after = np.clip(own + draw.normal(0, 0.05, 400), 0, 1)
    past = list(own)

    def arms(*, known):
        return (
            users(after[:200], before=past[:200] if known else None),
            users(after[200:], before=past[200:] if known else None),
        )

    blind, informed = (shown(*arms(known=known)).findings[0].difference for known in (False, True))
    assert informed.high - informed.low < 0.5 * (blind.high - blind.low)


def test_users_without_a_past_are_kept_and_change_no_mean():
    halves = spread(0.5, 200)
    known = [share if place % 2 else None for place, share in enumerate(halves)]
    found = shown(users(halves, before=known), users(halves, before=known)).findings[0]
    assert (found.num_new, found.num_old, found.difference.n) == (200, 200, 400)
    assert found.difference.value == pytest.approx(0, abs=1e-12)


def test_a_guard_shown_beyond_its_limit_rolls_back_though_users_accept_more():
    new = users(spread(0.6, 2000), error_share=[0.2] * 1000 + [0.0] * 1000)
    old = users(spread(0.5, 2000), error_share=[0.0] * 1999 + [0.1])
    decision = shown(new, old, LiveLimits(guards=(ERRORS,)))
    assert decision.kind is Kind.ROLL_BACK
    assert (
        decision.reasons[0].startswith("error share: +10.0 [")
        and "shown beyond the limit of +2.0" in decision.reasons[0]
    )


def test_a_guard_that_never_happened_is_within_its_limit():
    quiet = [0.0] * 2000
    decision = shown(
        users(spread(0.5, 2000), error_share=quiet), users(spread(0.5, 2000), error_share=quiet),
        LiveLimits(guards=(ERRORS,)),
    )  # fmt: skip
    assert decision.kind is Kind.PROMOTE
    assert decision.reasons[1] == "error share: none among 2000 users of the canary and 2000 others"


def test_a_relative_guard_counts_in_parts_of_the_serving_arms_mean():
    slow = GuardLimit(name="latency", at_most=0.25, scale=0.25, relative=True)
    new, old = (
        users(spread(0.5, 1000), latency=spread(300, 1000, 50)),
        users(spread(0.5, 1000), latency=spread(200, 1000, 50)),
    )
    finding = shown(new, old, LiveLimits(guards=(slow,))).findings[1]
    assert finding.difference.value == pytest.approx(0.5)
    assert (finding.mean_new, finding.mean_old, finding.is_beyond) == (pytest.approx(300), pytest.approx(200), True)


def test_a_guard_nobody_measured_is_left_out_and_costs_no_confidence():
    decision = shown(users(spread(0.5, 60)), users(spread(0.5, 60)), LiveLimits(guards=GUARDS))
    assert [finding.name for finding in decision.findings] == ["accept share"]
    assert decision.findings[0].difference.confidence == pytest.approx(0.95)


def test_guards_share_the_error_among_all():
    quiet = [0.0] * 60
    decision = shown(
        users(spread(0.5, 60), error_share=quiet), users(spread(0.5, 60), error_share=quiet),
        LiveLimits(guards=(ERRORS,)),
    )  # fmt: skip
    assert decision.findings[0].difference.confidence == pytest.approx(0.975)


def test_the_record_is_plain_json_and_counts_users_instead_of_listing_them():
    record = json.loads(json.dumps(shown(users([1.0] * 3), users([0.0] * 3), num_crossed=2).to_json(), allow_nan=False))
    assert record["num_crossed"] == 2 and record["live_findings"][0]["num_new"] == 3
    assert "new" not in record


def stream(draw, effect, *, num_users=1200, turns=8):
    """Users arrive one after the other, a fifth of them in the canary; each has a taste, a past and some turns."""
    taste = np.clip(draw.normal(0.5, 0.15, num_users), 0.02, 0.98)
    before = draw.binomial(turns, taste) / turns
    in_canary = draw.random(num_users) < 0.2
    after = draw.binomial(turns, np.clip(taste + effect * in_canary, 0, 1)) / turns
    errors = draw.binomial(turns, 0.01, num_users) / turns
    made = [
        User(accept_share=float(a), accept_share_before=float(b), guards={"error share": float(e)})
        for a, b, e in zip(after, before, errors, strict=True)
    ]
    return made, in_canary


def first_decision(draw, effect, *, looks=12):
    made, in_canary = stream(draw, effect)
    limits = LiveLimits(guards=(ERRORS,))
    for until in np.linspace(100, len(made), looks).astype(int):
        arms = [
            [user for user, mine in zip(made[:until], in_canary[:until], strict=True) if bool(mine) is side]
            for side in (True, False)
        ]
        decision = shown(*arms, limits)
        if decision.kind is not Kind.EXTEND:
            return decision.kind
    return Kind.EXTEND


def shares(effect, *, streams=150, seed=11):
    draw = np.random.default_rng(seed)
    kinds = [first_decision(draw, effect) for _ in range(streams)]
    return {kind: kinds.count(kind) / streams for kind in (Kind.PROMOTE, Kind.ROLL_BACK, Kind.EXTEND)}


def test_under_continuous_peeking_nothing_true_is_rolled_back_more_than_one_time_in_twenty():
    assert shares(0.0)[Kind.ROLL_BACK] <= 0.05


def test_a_loss_beyond_the_margin_is_promoted_at_most_one_time_in_twenty():
    assert shares(-0.05)[Kind.PROMOTE] <= 0.05


def test_the_power_rises_with_the_effect():
    found = [shares(effect, streams=60)[Kind.ROLL_BACK] for effect in (0.0, -0.05, -0.1)]
    assert all(first <= second for first, second in pairwise(found)) and found[-1] >= 0.9
    assert shares(0.05, streams=60)[Kind.PROMOTE] >= 0.8
