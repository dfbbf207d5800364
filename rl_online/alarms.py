"""What calls for a person, and when it no longer does. Pure: what was observed in, findings out; no database, no clock.

A rule says RAISED with a sentence and its numbers, CALM, or UNKNOWN when there is too little to tell. UNKNOWN neither
opens an alarm nor closes one. An alarm closes once its rule has been calm for a while, so that it does not flicker.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any


class Rule(StrEnum):
    """What an alarm is about."""

    SHARE_DROP = "share_drop"
    SILENCE = "silence"
    ORPHANS = "orphans"
    LABEL_LAG = "label_lag"
    JOBS_GIVEN_UP = "jobs_given_up"
    UPDATE_FAILED = "update_failed"
    ENGINE_AWAY = "engine_away"
    GATE_HELD = "gate_held"
    PAUSED = "paused"
    BUDGET = "budget"
    BAD_CALLS = "bad_calls"
    QUESTIONS = "questions"
    NO_EDIT = "no_edit"
    ABANDONED = "abandoned"
    LENGTH = "length"

    @property
    def heading(self) -> str:
        return _HEADINGS[self]

    @property
    def meaning(self) -> str:
        """When it is raised, in plain words."""
        return _MEANINGS[self]

    @property
    def severity(self) -> str:
        """critical: users notice or data is at stake; warning: the loop suffers; info: somebody chose it."""
        return _SEVERITIES.get(self, "warning")

    @property
    def is_told_again(self) -> bool:
        """Whether a standing alarm that is about something new is worth another notice: the next share of a budget."""
        return self is Rule.BUDGET

    @property
    def calm_after(self) -> timedelta:
        """How long the rule has to be calm before its alarm closes."""
        return _CALM_AFTER.get(self, timedelta(0))


class Verdict(StrEnum):
    RAISED = "raised"
    CALM = "calm"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one rule says of one subject."""

    rule: Rule
    subject: str = ""  # a policy's name; empty for the project
    verdict: Verdict
    summary: str = ""  # one sentence with its numbers; of a raised one only
    about: str = ""  # which occurrence it is: one that a person closed is not opened again for the same; see `is_state`
    evidence: dict[str, Any] = field(default_factory=dict)


# --- Limits ---

MIN_TURNS = 30  # settled ones, on both sides, before a drop is believed
SILENCE_FROM = timedelta(minutes=10)
SILENT_GAPS = 14.0  # mean gaps without an item: by chance once in a million, were they independent
MIN_ITEMS = 50  # in the day before, else nobody can say that silence is unusual
MIN_SIGNALS = 50
MAX_ORPHAN_SHARE = 0.2
MAX_LABEL_WAIT_S = 60.0
ENGINE_PATIENCE = timedelta(minutes=2)  # after a promotion or rollback
HELD_IN_ROW = 3
MIN_CONDUCT = 100  # turns on both sides before a drift of what answers do is believed
MAX_RISE = {"bad_calls": 0.02, "questions": 0.05, "no_edit": 0.05, "abandoned": 0.05}  # of the share
MAX_LONGER = 0.25  # of the mean length, up or down


# --- What the rules look at ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """The accept share of one checkpoint while it served."""

    checkpoint: str
    turns: int  # settled, shown, of real users
    share: float | None  # None without turns
    low: float
    high: float


def share_drop(policy: str, *, now: Window, before: Window | None) -> Finding:
    """The serving checkpoint's interval lies wholly below that of the one that served before it."""
    if before is None or now.share is None or before.share is None or min(now.turns, before.turns) < MIN_TURNS:
        return Finding(rule=Rule.SHARE_DROP, subject=policy, verdict=Verdict.UNKNOWN)
    if now.high >= before.low:
        return Finding(rule=Rule.SHARE_DROP, subject=policy, verdict=Verdict.CALM)
    return Finding(
        rule=Rule.SHARE_DROP,
        subject=policy,
        verdict=Verdict.RAISED,
        summary=(
            f"Users accept {now.share:.1%} of {now.checkpoint} ({now.low:.1%} to {now.high:.1%}, n {now.turns:,}); "
            f"of {before.checkpoint}, which served before, it was {before.share:.1%} "
            f"({before.low:.1%} to {before.high:.1%}, n {before.turns:,})"
        ),
        about=f"{now.checkpoint} after {before.checkpoint}",
        evidence={
            "checkpoint": now.checkpoint, "share": now.share, "low": now.low, "high": now.high, "turns": now.turns,
            "before": before.checkpoint, "share_before": before.share, "turns_before": before.turns,
        },
    )  # fmt: skip


def silence(*, last_at: datetime | None, items_before: int, now: datetime) -> Finding:
    """No turn and no signal for far longer than usual; `items_before`: how many came in the day before the last."""
    if last_at is None or items_before < MIN_ITEMS:
        return Finding(rule=Rule.SILENCE, verdict=Verdict.UNKNOWN)
    usual_gap = timedelta(days=1) / items_before
    quiet = now - last_at
    if quiet < max(SILENCE_FROM, SILENT_GAPS * usual_gap):
        return Finding(rule=Rule.SILENCE, verdict=Verdict.CALM)
    return Finding(
        rule=Rule.SILENCE,
        verdict=Verdict.RAISED,
        summary=(
            f"Nothing has come in since {last_at:%Y-%m-%d %H:%M} UTC; the day before brought {items_before:,} items, "
            f"one each {_span(usual_gap)}"
        ),
        about=last_at.isoformat(),
        evidence={"last_at": last_at.isoformat(), "items_before": items_before},
    )


def orphans(*, num_orphans: int, num_signals: int) -> Finding:
    """Many of the signals of a day name a turn that has not come; the newest minutes are not counted."""
    if num_signals < MIN_SIGNALS:
        return Finding(rule=Rule.ORPHANS, verdict=Verdict.UNKNOWN)
    share = min(1.0, num_orphans / num_signals)
    if share <= MAX_ORPHAN_SHARE:
        return Finding(rule=Rule.ORPHANS, verdict=Verdict.CALM)
    return Finding(
        rule=Rule.ORPHANS,
        verdict=Verdict.RAISED,
        summary=f"{share:.0%} of the last day's {num_signals:,} signals name a turn that has not come",
        evidence={"orphans": num_orphans, "signals": num_signals},
    )


def label_lag(*, wait_s: float) -> Finding:
    """Turns wait for their label; `wait_s`: how long the oldest that is due has waited."""
    if wait_s <= MAX_LABEL_WAIT_S:
        return Finding(rule=Rule.LABEL_LAG, verdict=Verdict.CALM)
    return Finding(
        rule=Rule.LABEL_LAG,
        verdict=Verdict.RAISED,
        summary=f"The oldest turn that could be labelled has waited {_span(timedelta(seconds=wait_s))}",
        evidence={"wait_s": round(wait_s, 1)},
    )


def jobs_given_up(*, kinds: Sequence[str], newest_id: int | None) -> Finding:
    """Jobs failed five times and lie in quarantine; `kinds`: one entry for each."""
    if not kinds:
        return Finding(rule=Rule.JOBS_GIVEN_UP, verdict=Verdict.CALM)
    jobs = "1 job was" if len(kinds) == 1 else f"{len(kinds):,} jobs were"
    return Finding(
        rule=Rule.JOBS_GIVEN_UP,
        verdict=Verdict.RAISED,
        summary=f"{jobs} given up after five attempts: {', '.join(sorted(set(kinds)))}",
        about=str(newest_id),
        evidence={"jobs": len(kinds), "newest": newest_id},
    )


def update_failed(policy: str, *, run_id: str | None, title: str = "", error: str = "") -> Finding:
    """The newest finished update of the policy failed; `run_id` None: it did not."""
    if run_id is None:
        return Finding(rule=Rule.UPDATE_FAILED, subject=policy, verdict=Verdict.CALM)
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return Finding(
        rule=Rule.UPDATE_FAILED,
        subject=policy,
        verdict=Verdict.RAISED,
        summary=f"The {title} failed: {lines[-1][:300] if lines else 'no reason was given'}",
        about=run_id,
        evidence={"update": run_id},
    )


def engine_away(policy: str, *, serving: str, num_engines: int, since: datetime, now: datetime) -> Finding:
    """No engine holds the weights that should serve, some minutes after they were chosen."""
    if num_engines:
        return Finding(rule=Rule.ENGINE_AWAY, subject=policy, verdict=Verdict.CALM)
    if now - since < ENGINE_PATIENCE:
        return Finding(rule=Rule.ENGINE_AWAY, subject=policy, verdict=Verdict.UNKNOWN)
    return Finding(
        rule=Rule.ENGINE_AWAY,
        subject=policy,
        verdict=Verdict.RAISED,
        summary=f"No engine has said in the last ten minutes that it holds {serving}, which should serve",
        about=serving,
        evidence={"checkpoint": serving},
    )


def gate_held(policy: str, *, decisions: Sequence[str], newest: str) -> Finding:
    """The gate held the last candidates, one after the other; `decisions` newest first, `newest`: its candidate."""
    held = 0
    for decision in decisions:
        if decision != "hold":
            break
        held += 1
    if held < HELD_IN_ROW:
        return Finding(rule=Rule.GATE_HELD, subject=policy, verdict=Verdict.CALM)
    return Finding(
        rule=Rule.GATE_HELD,
        subject=policy,
        verdict=Verdict.RAISED,
        summary=f"The gate held the last {held} candidates of {policy}, the newest was {newest}",
        about=newest,
        evidence={"held": held, "newest": newest},
    )


def paused(policy: str, *, is_paused: bool, since: datetime | None = None) -> Finding:
    """Turns are collected and nothing is learnt from them."""
    if not is_paused:
        return Finding(rule=Rule.PAUSED, subject=policy, verdict=Verdict.CALM)
    when = f" since {since:%Y-%m-%d %H:%M} UTC" if since else ""
    return Finding(
        rule=Rule.PAUSED,
        subject=policy,
        verdict=Verdict.RAISED,
        summary=f"Learning of {policy} is paused{when}: turns are collected, no update starts by itself",
        about=since.isoformat() if since else "",
    )


def budget(
    name: str, *, spent_usd: Decimal | None, usd: Decimal, reached: int | None, since: datetime, unpriced: int
) -> Finding:
    """A share of a budget is spent that somebody wants to know of. `spent_usd` None: nothing called has a price.

    `reached`: the highest of its alerts, in percent; `unpriced`: calls that are not in what was spent.
    """
    if spent_usd is None:
        return Finding(rule=Rule.BUDGET, subject=name, verdict=Verdict.UNKNOWN)
    if reached is None:
        return Finding(rule=Rule.BUDGET, subject=name, verdict=Verdict.CALM)
    beside = f"; {unpriced:,} calls without a price are not in it" if unpriced else ""
    return Finding(
        rule=Rule.BUDGET,
        subject=name,
        verdict=Verdict.RAISED,
        summary=(
            f"${spent_usd:,.2f} of the ${usd:,.2f} for {name} are spent since {since:%Y-%m-%d} UTC, "
            f"{100 * spent_usd / usd:.0f} %: {reached} % is reached{beside}"
        ),
        about=f"{since:%Y-%m-%d} {reached} %",
        evidence={"spent_usd": str(spent_usd), "usd": str(usd), "reached": reached, "unpriced": unpriced},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Conduct:
    """What the answers of one checkpoint do, among real users."""

    checkpoint: str
    turns: int  # of which the number is known
    value: float | None  # a share, or a mean; None without turns
    low: float = 0.0  # of the 95 % interval of a share
    high: float = 1.0


def drift(rule: Rule, policy: str, *, now: Conduct, before: Sequence[Conduct]) -> Finding:
    """A share among the serving checkpoint's answers is above that of an earlier checkpoint by more than its limit.

    `before`: the one that served before and the first, so that many small steps are seen too. The intervals must be
    apart, as they are where it is no chance.
    """
    known = [one for one in before if one.value is not None and one.turns >= MIN_CONDUCT]
    if now.value is None or now.turns < MIN_CONDUCT or not known:
        return Finding(rule=rule, subject=policy, verdict=Verdict.UNKNOWN)
    value, limit = now.value, MAX_RISE[rule]
    risen = [one for one in known if one.value is not None and value - one.value > limit and now.low > one.high]
    if not risen:
        return Finding(rule=rule, subject=policy, verdict=Verdict.CALM)
    old = min(risen, key=lambda one: one.value or 0.0)
    return Finding(
        rule=rule,
        subject=policy,
        verdict=Verdict.RAISED,
        summary=(
            f"{rule.heading}: {value:.1%} of the turns of {now.checkpoint} ({now.low:.1%} to {now.high:.1%}, "
            f"n {now.turns:,}); with {old.checkpoint} it was {old.value:.1%} "
            f"({old.low:.1%} to {old.high:.1%}, n {old.turns:,})"
        ),
        about=f"{now.checkpoint} after {old.checkpoint}",
        evidence={
            "checkpoint": now.checkpoint, "value": value, "turns": now.turns,
            "before": old.checkpoint, "value_before": old.value, "turns_before": old.turns,
        },
    )  # fmt: skip


def length(policy: str, *, now: Conduct, before: Sequence[Conduct]) -> Finding:
    """The serving checkpoint's answers are longer or shorter than an earlier one's by more than a quarter of its mean.

    Hourly counts know no spread, so this one has a limit and no interval.
    """
    known = [one for one in before if one.value and one.turns >= MIN_CONDUCT]
    if now.value is None or now.turns < MIN_CONDUCT or not known:
        return Finding(rule=Rule.LENGTH, subject=policy, verdict=Verdict.UNKNOWN)
    changes = [(now.value / one.value - 1, one) for one in known if one.value]
    change, old = max(changes, key=lambda pair: abs(pair[0]))
    if abs(change) <= MAX_LONGER:
        return Finding(rule=Rule.LENGTH, subject=policy, verdict=Verdict.CALM)
    return Finding(
        rule=Rule.LENGTH,
        subject=policy,
        verdict=Verdict.RAISED,
        summary=(
            f"Answers of {now.checkpoint} have {now.value:.0f} tokens on average, n {now.turns:,}; "
            f"with {old.checkpoint} it was {old.value:.0f}, n {old.turns:,}"
        ),
        about=f"{now.checkpoint} after {old.checkpoint}",
        evidence={
            "checkpoint": now.checkpoint,
            "value": now.value,
            "before": old.checkpoint,
            "value_before": old.value,
        },
    )


# --- What becomes of an alarm ---


def is_over(finding: Finding, *, raised_at: datetime, now: datetime) -> bool:
    """Whether a standing alarm, found raised last at `raised_at`, closes."""
    return finding.verdict is Verdict.CALM and now - raised_at >= finding.rule.calm_after


def is_state(rule: Rule, *, about: str) -> bool:
    """Whether the alarm is of a state that comes and goes, so that being calm ends the occurrence a person closed."""
    return rule is Rule.ENGINE_AWAY or not about


def is_news(finding: Finding, *, closed_about: str | None) -> bool:
    """Whether a raised finding opens an alarm; not when a person has closed one about the very same occurrence."""
    return finding.verdict is Verdict.RAISED and (closed_about is None or closed_about != finding.about)


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{math.floor(seconds / 3600)} h"


_HEADINGS = {
    Rule.SHARE_DROP: "Accept share dropped",
    Rule.SILENCE: "Nothing comes in",
    Rule.ORPHANS: "Signals without their turn",
    Rule.LABEL_LAG: "Labels are late",
    Rule.JOBS_GIVEN_UP: "Jobs given up",
    Rule.UPDATE_FAILED: "Update failed",
    Rule.ENGINE_AWAY: "No engine holds what serves",
    Rule.GATE_HELD: "The gate keeps holding",
    Rule.PAUSED: "Learning is paused",
    Rule.BUDGET: "Budget",
    Rule.BAD_CALLS: "Invalid tool calls",
    Rule.QUESTIONS: "Questions back",
    Rule.NO_EDIT: "Answers without an edit",
    Rule.ABANDONED: "Abandoned turns",
    Rule.LENGTH: "Length of answers",
}
_MEANINGS = {
    Rule.SHARE_DROP: (
        "the 95 % interval of the serving checkpoint's accept share lies wholly below that of the one that served "
        f"before; at least {MIN_TURNS} settled turns each"
    ),
    Rule.SILENCE: (
        f"no turn and no signal for {SILENT_GAPS:.0f} times the usual gap and at least "
        f"{SILENCE_FROM.seconds // 60} min; not below {MIN_ITEMS} items a day"
    ),
    Rule.ORPHANS: (
        f"more than {MAX_ORPHAN_SHARE:.0%} of a day's signals, of at least {MIN_SIGNALS}, name a turn that has not come"
    ),
    Rule.LABEL_LAG: f"a turn that could be labelled has waited more than {MAX_LABEL_WAIT_S:.0f} s",
    Rule.JOBS_GIVEN_UP: "a job failed five times and lies in quarantine",
    Rule.UPDATE_FAILED: "the newest finished update of the policy failed",
    Rule.ENGINE_AWAY: (
        f"no engine reports the serving checkpoint's digest, {ENGINE_PATIENCE.seconds // 60} min after it was chosen"
    ),
    Rule.GATE_HELD: f"the gate held {HELD_IN_ROW} candidates in a row",
    Rule.PAUSED: "the policy's plan is paused",
    Rule.BUDGET: "what was spent in a UTC day or month reaches a share of its budget; told again at each share",
}
_DRIFTS = {
    Rule.BAD_CALLS: "turns with a tool call nobody could carry out",
    Rule.QUESTIONS: "turns that end in a question and do nothing",
    Rule.NO_EDIT: "turns without tool call or code",
    Rule.ABANDONED: "turns their user walked away from",
}
_MEANINGS |= {
    rule: (
        f"the serving checkpoint's share of {what} is more than {100 * MAX_RISE[rule]:.0f} points above that of the "
        f"one before it or of the first, with 95 % intervals apart; at least {MIN_CONDUCT} turns each"
    )
    for rule, what in _DRIFTS.items()
} | {
    Rule.LENGTH: (
        f"the serving checkpoint's mean answer is more than {MAX_LONGER:.0%} longer or shorter than that of the one "
        f"before it or of the first; at least {MIN_CONDUCT} turns each"
    )
}
_SEVERITIES = {
    Rule.BAD_CALLS: "critical",
    Rule.SHARE_DROP: "critical",
    Rule.SILENCE: "critical",
    Rule.ENGINE_AWAY: "critical",
    Rule.PAUSED: "info",
}
_CALM_AFTER = {
    **dict.fromkeys((*_DRIFTS, Rule.LENGTH), timedelta(minutes=30)),
    Rule.SHARE_DROP: timedelta(minutes=30),
    Rule.ORPHANS: timedelta(minutes=30),
    Rule.LABEL_LAG: timedelta(minutes=5),
    Rule.ENGINE_AWAY: timedelta(minutes=1),
}
