from random import Random

from strop.demo.users import DUPLICATE_RATE, User, crowd, react

POSITIVE = {"accept", "copy"}
NEGATIVE = {"reject", "undo", "retry", "correction"}


def reactions(*, works, strictness=0.7, num=4000, seed=0, is_retry=False):
    user = User(name="user-01", strictness=strictness)
    rng = Random(seed)
    return [react(user, works=works, answer=" n", wanted=" n + 7", is_retry=is_retry, rng=rng) for _ in range(num)]


def is_positive(reaction):
    kinds = {signal.kind for signal in reaction.signals}
    return bool(kinds & POSITIVE) and not kinds & NEGATIVE


def test_the_same_seed_gives_the_same_clicks():
    assert reactions(works=True, seed=7, num=50) == reactions(works=True, seed=7, num=50)
    assert reactions(works=True, seed=7, num=50) != reactions(works=True, seed=8, num=50)


def test_one_click_in_twenty_is_a_mistake():
    for works in (True, False):
        wrong = sum(reaction.is_mistake for reaction in reactions(works=works))
        assert 0.04 < wrong / 4000 < 0.06
    assert 0.94 < sum(map(is_positive, reactions(works=True))) / 4000 < 0.96
    assert 0.04 < sum(map(is_positive, reactions(works=False))) / 4000 < 0.06


def test_a_bad_answer_brings_every_kind_of_displeasure():
    kinds = {signal.kind for reaction in reactions(works=False) for signal in reaction.signals}
    assert {"reject", "retry", "undo", "correction", "abandon", "thumbs"} <= kinds
    assert any(not reaction.signals for reaction in reactions(works=False))


def test_strict_users_reject_more_often():
    def rejects(strictness):
        return sum(
            reaction.signals[:1] != () and reaction.signals[0].kind == "reject"
            for reaction in reactions(works=False, strictness=strictness)
        )

    assert rejects(0.95) > rejects(0.4) + 1000


def test_nobody_asks_a_third_time():
    assert any(reaction.asks_again for reaction in reactions(works=False))
    assert not any(reaction.asks_again for reaction in reactions(works=False, is_retry=True))


def test_signals_arrive_late_twice_and_out_of_order_but_never_before_the_click():
    signals = [signal for reaction in reactions(works=True) for signal in reaction.signals]
    assert all(signal.arrives_after_s >= signal.after_s for signal in signals)
    assert any(signal.arrives_after_s > 5 for signal in signals)
    assert abs(sum(signal.is_sent_twice for signal in signals) / len(signals) - DUPLICATE_RATE) < 0.01
    several = [reaction.signals for reaction in reactions(works=True) if len(reaction.signals) == 2]
    swapped = [first.arrives_after_s > second.arrives_after_s for first, second in several]
    assert 0.2 < sum(swapped) / len(swapped) < 0.45


def test_a_crowd_is_the_same_for_the_same_seed_and_mixed_in_temper():
    assert crowd(seed=1, size=24) == crowd(seed=1, size=24)
    tempers = [user.strictness for user in crowd(seed=1, size=24)]
    assert max(tempers) - min(tempers) > 0.3
