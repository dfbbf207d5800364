"""What a result or a comparison from elsewhere may hold: said by field, before a column refuses it."""

import math
from typing import Any

import msgspec

from evals.importers.record import Battle, Result
from registry.errors import InvalidInput

MAX_ID, MAX_SCORER, MAX_NAME, MAX_REPEAT = 128, 200, 200, 2**31 - 1
MAX_COST_USD = 10**9


def check_result(result: Result, *, place: int) -> None:
    """Raises InvalidInput, naming the field by its place in `results`."""
    at = f"results[{place}]"
    _check_text(result.problem, MAX_ID, f"{at}.problem")
    _check_text(result.scorer, MAX_SCORER, f"{at}.scorer")
    _check_repeat(result.repeat, at)
    if result.status == "scored":
        if result.score is None or not 0 <= result.score <= 1:
            raise InvalidInput(f"found {result.score}; a scored result has a score from 0 to 1", field=f"{at}.score")
    elif result.score is not None:
        raise InvalidInput(f"found {result.score} beside status {result.status}; leave it out", field=f"{at}.score")
    _check_cost(result.cost_usd, at)
    if result.latency_ms is not None and not (math.isfinite(result.latency_ms) and result.latency_ms >= 0):
        raise InvalidInput("a time is a number of milliseconds, not negative", field=f"{at}.latency_ms")
    for name, number in msgspec.to_builtins(result.usage).items() if result.usage else ():
        if isinstance(number, int) and not 0 <= number < 2**53:
            raise InvalidInput(f"found {number}; a count of tokens is not negative", field=f"{at}.usage.{name}")


def check_battle(battle: Battle, *, place: int) -> None:
    at = f"battles[{place}]"
    _check_text(battle.problem, MAX_ID, f"{at}.problem")
    _check_text(battle.left, MAX_NAME, f"{at}.left")
    _check_text(battle.right, MAX_NAME, f"{at}.right")
    if len(battle.rater) > MAX_NAME:
        raise InvalidInput(f"at most {MAX_NAME} characters", field=f"{at}.rater")
    _check_repeat(battle.repeat, at)
    if battle.preference is not None and not 0 <= battle.preference <= 1:
        raise InvalidInput(f"found {battle.preference}; P(right wins) is from 0 to 1", field=f"{at}.preference")
    _check_cost(battle.cost_usd, at)


def _check_text(text: str, limit: int, field: str) -> None:
    if not 0 < len(text) <= limit:
        raise InvalidInput(f"found {text[:50]!r}; 1 to {limit} characters", field=field)


def _check_repeat(repeat: int, at: str) -> None:
    if not 0 <= repeat <= MAX_REPEAT:
        raise InvalidInput(f"found {repeat}; repeats count from 0", field=f"{at}.repeat")


def _check_cost(cost: Any, at: str) -> None:
    if cost is not None and not (cost.is_finite() and 0 <= cost <= MAX_COST_USD):
        raise InvalidInput("a cost is a number of US dollars, not negative", field=f"{at}.cost_usd")
