"""What would have helped with an answer, known only afterwards: the hints a policy may teach itself by.

| source | hint |
|---|---|
| reviews | a reviewer's note |
| tests | what a failing test said |
| comments | what the user said about the answer, or next |
| edits | what the user changed, as a diff |

Inside a tenant; reads only.
"""

import difflib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evals.models import Score, ScoreStatus
from feedback.models import ReviewResponse, TurnPayload, UserSignal
from rl_online.services.tokens import Text

SOURCES = ("reviews", "tests", "comments", "edits")
SAID = {"comments": ("comment", "follow_up"), "edits": ("edit", "correction")}
OF_PEOPLE = ("judge:", "panel:")  # scorers that are no tests
MAX_CHARACTERS = 2000  # of all hints for one answer


def find_hints(payloads: Mapping[str, TurnPayload], *, sources: Collection[str]) -> dict[str, dict[str, str]]:
    """turn -> source -> hint, in the order of SOURCES; turns without any are not there."""
    turns = list(payloads)
    by_source = {
        "reviews": _notes(turns) if "reviews" in sources else {},
        "tests": _failures(turns) if "tests" in sources else {},
        "comments": _said(turns, "comments") if "comments" in sources else {},
        "edits": _changes(payloads) if "edits" in sources else {},
    }
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for source in SOURCES:
        for turn, hint in by_source[source].items():
            if hint.strip():
                found[turn][source] = hint.strip()
    return dict(found)


def hinted(payload: TurnPayload, hint: str) -> Text:
    """The turn's prompt with a hint in it: behind a chat's last message of the user, else before a plain text."""
    note = f"(Hint: {hint[:MAX_CHARACTERS]})"
    plain = Text.prompt_of(payload)
    if plain.messages is None:
        return replace(plain, plain=f"{note}\n{plain.plain or ''}")
    *before, last = plain.messages
    if last.get("role") == "user" and isinstance(last.get("content"), str):
        return replace(plain, messages=[*before, {**last, "content": f"{last['content']}\n\n{note}"}])
    return replace(plain, messages=[*before, last, {"role": "user", "content": note}])


def _notes(turns: Sequence[str]) -> dict[str, str]:
    standing = ReviewResponse.objects.filter(flag__turn__turn_id__in=turns, withdrawn_at__isnull=True)
    return _together(standing.exclude(note="").order_by("id").values_list("flag__turn__turn_id", "note"))


def _failures(turns: Sequence[str]) -> dict[str, str]:
    failed = Score.objects.filter(turn_ref__in=turns, status=ScoreStatus.SCORED, value__lt=1).exclude(explanation="")
    rows = failed.order_by("id").values_list("turn_ref", "scorer", "explanation")
    return _together((turn, said) for turn, scorer, said in rows if not scorer.startswith(OF_PEOPLE))


def _said(turns: Sequence[str], source: str) -> dict[str, str]:
    return _together(_signals(turns, source))


def _changes(payloads: Mapping[str, TurnPayload]) -> dict[str, str]:
    last = dict(_signals(list(payloads), "edits"))
    return {turn: _diff(payloads[turn].completion, text) for turn, text in last.items()}


def _signals(turns: Sequence[str], source: str) -> list[tuple[str, str]]:
    """(turn, text) by time; what was superseded is left out."""
    signals = UserSignal.objects.filter(turn_ref__in=turns, kind__in=SAID[source])
    superseded = set(signals.filter(supersedes__isnull=False).values_list("supersedes", flat=True))
    rows = signals.filter(text__isnull=False).order_by("at", "signal_id").values_list("turn_ref", "signal_id", "text")
    return [(str(turn), str(text)) for turn, signal, text in rows if signal not in superseded]


def _diff(before: str, after: str) -> str:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[3:]
    return "\n".join(lines)


def _together(rows: Any) -> dict[str, str]:
    """Different words about one turn, each once, in their order."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for turn, text in rows:
        found[turn][text.strip()] = None
    return {turn: "\n".join(texts) for turn, texts in found.items()}
