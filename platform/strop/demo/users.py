"""What a user of the demo's editor does with an answer. Pure: the same seed always gives the same clicks.

A user knows whether the answer works (they tried it) and clicks accordingly, but one click in twenty is a mistake.
Strict users reject what does not work; patient ones ask again, correct it by hand, walk away or say nothing.
Delivery is part of the story: signals arrive late, twice, or in another order than they happened.
"""

from dataclasses import dataclass, replace
from random import Random

MISTAKE_RATE = 0.05  # of the clicks say the opposite of what the user meant
LATE_RATE = 0.05  # arrive some seconds late, most within the decision window
VERY_LATE_RATE = 0.01  # arrive after the window closed: a correction
DUPLICATE_RATE = 0.03  # are sent twice
SWAP_RATE = 0.3  # of the reactions made of several signals arrive in reverse order


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    name: str
    strictness: float  # [0, 1]: how surely a bad answer is rejected outright


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """One event about the turn, when it happens and when it reaches Strop."""

    kind: str
    after_s: float  # from the answer to the click
    arrives_after_s: float  # from the answer to its delivery, never before the click
    value: float | None = None
    text: str | None = None
    is_sent_twice: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Reaction:
    """Empty signals are silence."""

    signals: tuple[Signal, ...]
    asks_again: bool = False  # the same prompt once more
    is_mistake: bool = False


def crowd(*, seed: int, size: int) -> list[User]:
    rng = Random(f"crowd {seed}")
    return [User(name=f"user-{number:02d}", strictness=round(rng.uniform(0.4, 0.95), 2)) for number in range(size)]


def react(user: User, *, works: bool, answer: str, wanted: str, is_retry: bool, rng: Random) -> Reaction:
    """What `user` does with `answer` where `wanted` would have been right."""
    is_mistake = rng.random() < MISTAKE_RATE
    happy = works != is_mistake
    clicks = _happy(answer, rng) if happy else _unhappy(user, wanted, is_retry=is_retry, rng=rng)
    signals = tuple(_posted(click, rng) for click in clicks)
    if len(signals) > 1 and rng.random() < SWAP_RATE:
        signals = _swapped(signals)
    return Reaction(
        signals=signals, asks_again=any(signal.kind == "retry" for signal in signals), is_mistake=is_mistake
    )


def _click(kind: str, after_s: float, *, value: float | None = None, text: str | None = None) -> Signal:
    return Signal(kind=kind, after_s=after_s, arrives_after_s=after_s, value=value, text=text)


def _happy(answer: str, rng: Random) -> list[Signal]:
    thinks_s = rng.uniform(0.1, 0.6)
    accept = _click("accept", thinks_s)
    draw = rng.random()
    if draw < 0.07:
        return [_click("copy", thinks_s)]
    if draw < 0.14:
        return [accept, _click("thumbs", thinks_s + 0.3, value=1)]
    if draw < 0.19:
        return [accept, _click("edit", thinks_s + 0.4, text=f"{answer.strip()}  # checked")]
    return [accept]


def _unhappy(user: User, wanted: str, *, is_retry: bool, rng: Random) -> list[Signal]:
    thinks_s = rng.uniform(0.1, 0.6)
    if rng.random() < user.strictness:
        return [_click("reject", thinks_s)]
    draw = rng.random()
    if draw < 0.25:
        return [_click("accept", thinks_s), _click("undo", thinks_s + 0.3)]
    if draw < 0.5 and not is_retry:
        return [_click("retry", thinks_s)]
    if draw < 0.7:
        return [_click("correction", thinks_s, text=wanted.strip())]
    if draw < 0.8:
        return [_click("reject", thinks_s), _click("thumbs", thinks_s + 0.2, value=-1)]
    if draw < 0.9:
        return [_click("abandon", thinks_s)]
    return []


def _posted(click: Signal, rng: Random) -> Signal:
    draw = rng.random()
    delay_s = 0.0
    if draw < VERY_LATE_RATE:
        delay_s = rng.uniform(7, 9)
    elif draw < VERY_LATE_RATE + LATE_RATE:
        delay_s = rng.uniform(1, 3.5)
    return replace(click, arrives_after_s=click.after_s + delay_s, is_sent_twice=rng.random() < DUPLICATE_RATE)


def _swapped(signals: tuple[Signal, ...]) -> tuple[Signal, ...]:
    """The first happened first and arrives last."""
    first, *others = signals
    latest_s = max(signal.arrives_after_s for signal in signals) + 0.5
    return (replace(first, arrives_after_s=latest_s), *others)
