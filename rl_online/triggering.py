"""Whether it is time for the next update. Pure: counts and times in, a decision with its reason out."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What is known about a policy when the question is asked."""

    num_ready: int  # settled turns that could be learnt from now
    oldest_ready_at: datetime | None  # when the first of them settled; None where there are none
    last_update_at: datetime | None  # when the newest update was made; None before the first
    is_paused: bool
    is_updating: bool  # an update is queued, training or proving
    now: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Rhythm:
    """Every N turns, or every T minutes once there are enough for an update at all."""

    every_turns: int
    every_minutes: int | None  # None: only by count
    min_turns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Trigger:
    is_due: bool
    reason: str  # in plain words, for the page


def decide_trigger(situation: Situation, rhythm: Rhythm) -> Trigger:
    """Due at N turns; or with `min_turns` of them, T minutes after the last update or, before one, the first turn."""
    if situation.is_paused:
        return Trigger(is_due=False, reason="learning is paused")
    if situation.is_updating:
        return Trigger(is_due=False, reason="an update is under way")
    ready = f"{situation.num_ready} of {rhythm.every_turns} labelled turns"
    if situation.num_ready >= rhythm.every_turns:
        return Trigger(is_due=True, reason=f"{ready} are there")
    if situation.num_ready < rhythm.min_turns:
        return Trigger(is_due=False, reason=f"{ready} are there, at least {rhythm.min_turns} are needed")
    since = situation.last_update_at or situation.oldest_ready_at
    if rhythm.every_minutes is not None and since is not None:
        waited = situation.now - since
        if waited >= timedelta(minutes=rhythm.every_minutes):
            return Trigger(is_due=True, reason=f"{ready} are there and {rhythm.every_minutes} minutes have passed")
    return Trigger(is_due=False, reason=f"{ready} are there")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """When the next update is likely to start by itself."""

    seconds: float | None  # from now; 0: it is due; None: nobody can tell
    by: str  # "count" or "time"; empty when nobody can tell


UNFORESEEN = Outlook(seconds=None, by="")


def foresee(situation: Situation, rhythm: Rhythm, *, turns_per_minute: float) -> Outlook:
    """When it will be due if turns keep coming at this rate; with no turns coming, only what time alone decides.

    Example: 83 of 384 turns, 50 a minute: by count in 301 / 50 min = 361 s.
    """
    if situation.is_paused or situation.is_updating:
        return UNFORESEEN
    found = []
    if (enough_s := _until(rhythm.every_turns, situation.num_ready, turns_per_minute)) is not None:
        found.append(Outlook(seconds=enough_s, by="count"))
    since = situation.last_update_at or situation.oldest_ready_at
    least_s = _until(rhythm.min_turns, situation.num_ready, turns_per_minute)
    if rhythm.every_minutes is not None and since is not None and least_s is not None:
        left_s = (since + timedelta(minutes=rhythm.every_minutes) - situation.now).total_seconds()
        found.append(Outlook(seconds=max(0.0, left_s, least_s), by="time"))
    return min(found, key=lambda outlook: outlook.seconds or 0.0, default=UNFORESEEN)


def _until(wanted: int, ready: int, turns_per_minute: float) -> float | None:
    """Seconds; None when they will never be there."""
    if ready >= wanted:
        return 0.0
    return 60 * (wanted - ready) / turns_per_minute if turns_per_minute > 0 else None
