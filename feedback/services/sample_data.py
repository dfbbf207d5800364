"""Invented history for an empty project, so that its pages can be looked at before anything real is there.

It goes in through the same door as everything else, marked `source: simulated`, with ids that begin with
`strop-sample-`; labels and flags are then made of it by the same jobs as of real turns. Only what can be true is
invented: answers of two external models and what a dozen users made of them, no checkpoint, no update. Inside a
tenant.
"""

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from feedback import wire
from feedback.models import AgentSession, LastRefusal, LedgerItem, Turn, UserSignal
from feedback.services import outcomes
from feedback.services.record import Receipt, record_items
from registry.errors import Conflict
from registry.services import audit

MARK = "strop-sample-"
NUM_TURNS = 300
DAYS = 3
USERS = 12
ACCEPTS = {"example-small": 0.42, "example-large": 0.58}  # share of the shown answers
SEED = 20

Item = dict[str, Any]

QUESTIONS = (
    ("python", "Complete this function:\ndef mean(values):", "    return sum(values) / len(values)"),
    ("python", "Complete this function:\ndef clamp(x, low, high):", "    return max(low, min(high, x))"),
    ("python", "Complete this function:\ndef words(text):", "    return text.split()"),
    ("python", "Write a test for slugify.", 'def test_spaces_become_dashes():\n    assert slugify("a b") == "a-b"'),
    ("sql", "Orders of the last week, newest first.", "SELECT * FROM orders WHERE week = 48 ORDER BY at DESC;"),
    ("sql", "Sign-ups by day?", "SELECT date(created_at), count(*) FROM users GROUP BY 1 ORDER BY 1;"),
    ("javascript", "Debounce a function.", "const later = (f) => () => setTimeout(f, 200);"),
    (None, "Say in a sentence what this change does.", "It retries an upload that was cut and keeps what was sent."),
    (None, "Rewrite this politely: send me the file now", "Could you send me the file when you have a moment?"),
)  # fmt: skip
EDITS = (
    ("values) /", "values, 0.0) /"),
    ("return ", "return  # checked\n    return "),
    ("Could you", "Could you please"),
)


def is_loadable() -> bool:
    """Whether nothing was ever received: invented history never stands beside a real one that came before it."""
    return not Turn.objects.exists() and not UserSignal.objects.exists()


def is_loaded() -> bool:
    return Turn.objects.filter(turn_id__startswith=MARK, source="simulated").exists()


def load(project_id: UUID, *, actor: str) -> Receipt:
    """Raises Conflict for a project that is not empty."""
    if not is_loadable():
        raise Conflict("demo data is for an empty project; this one has turns or signals")
    now = timezone.now()
    body = json.dumps({"items": list(items(now))}).encode()
    receipt = record_items(
        project_id,
        wire.parse_request(body, received_at=now, max_age=timedelta(days=2 * DAYS)),
        received_at=now,
    )
    audit("load demo data", "project", project_id, actor=actor, after=receipt.outcomes)
    return receipt


def remove(project_id: UUID, *, actor: str) -> int:
    """Delete every invented turn with its signals, labels, flags and text; how many turns. Real ones stay."""
    invented = Turn.objects.filter(turn_id__startswith=MARK, source="simulated")
    turns = list(invented.values_list("turn_id", flat=True))
    hours = _hours()
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM feedback_turnpayload WHERE project_id = %s AND turn_id = ANY(%s)", [project_id, turns]
        )
    UserSignal.objects.filter(signal_id__startswith=MARK).delete()
    invented.delete()
    AgentSession.objects.filter(session_id__startswith=MARK, turns=None).delete()
    LedgerItem.objects.filter(item_id__startswith=MARK).delete()
    LastRefusal.objects.filter(item_id__startswith=MARK).delete()
    for hour, number in hours.items():
        outcomes.move(project_id, hour, "accepted", "deleted", number)
    audit("remove demo data", "project", project_id, actor=actor, before={"turns": len(turns)})
    return len(turns)


def items(now: datetime) -> Iterator[Item]:
    """The history up to `now`, the same for everybody and at any hour but for its dates."""
    chance, calendar = random.Random(SEED), random.Random(SEED + 1)
    number = 0
    while number < NUM_TURNS:
        started = _office_hours(now, calendar)
        user, model = f"user-{chance.randrange(USERS) + 1}", chance.choice(list(ACCEPTS))
        session = f"{MARK}session-{number}"
        for index in range(min(chance.choice((1, 1, 2, 3, 4)), NUM_TURNS - number)):
            at = started + timedelta(seconds=70 * index + chance.randrange(30))
            yield from _exchange(f"{MARK}turn-{number}", session, index, at, user=user, model=model, chance=chance)
            number += 1


def _exchange(
    turn: str, session: str, index: int, at: datetime, *, user: str, model: str, chance: random.Random
) -> Iterator[Item]:
    language, asked, good = chance.choice(QUESTIONS)
    completion = _completion(good, chance)
    yield {
        "type": "turn",
        "id": turn,
        "session": session,
        "index": index,
        "at": at.isoformat(),
        "model": model,
        "messages": [{"role": "user", "content": asked}],
        "completion": completion,
        "usage": {"input": len(asked) // 4 + 8, "output": max(1, len(completion) // 4)},
        "ttft_ms": round(chance.lognormvariate(4.4, 0.4), 1),
        "latency_ms": round(chance.lognormvariate(6.4, 0.5), 1),
        "finish_reason": "stop",
        "surface": "editor" if language else "chat",
        "language": language,
        "user": user,
        "source": "simulated",
        "metadata": {"demo": True},
    }
    for order, (kind, fields) in enumerate(_reactions(completion, ACCEPTS[model], chance)):
        after = timedelta(seconds=2 + 3 * order + chance.randrange(4))
        yield {
            "type": "signal",
            "id": f"{turn.replace('turn', 'signal')}-{order}",
            "turn": turn,
            "kind": kind,
            "at": (at + after).isoformat(),
            "user": user,
            **fields,
        }


def _completion(good: str, chance: random.Random) -> str:
    """Mostly good; now and then empty, or with a fence that is never closed, which triage is there to find."""
    dice = chance.random()
    if dice < 0.01:
        return ""
    if dice < 0.03:
        return f"```\n{good}"
    return good if dice < 0.8 else good.replace("(", "(  ", 1)


def _reactions(completion: str, accepts: float, chance: random.Random) -> Iterator[tuple[str, Item]]:
    if not completion.strip() or chance.random() < 0.12:
        yield "retry", {}
        yield "retry", {}
        return
    dice = chance.random()
    if dice < accepts:
        yield "accept", {}
        changed = next((completion.replace(a, b, 1) for a, b in EDITS if a in completion), completion)
        if chance.random() < 0.2 and changed != completion:
            yield "edit", {"text": changed}
        if chance.random() < 0.1:
            yield "thumbs", {"value": 1}
    elif dice < accepts + 0.25:
        yield "reject", {}
        if chance.random() < 0.15:
            yield "comment", {"text": "Not what I asked for."}


def _office_hours(now: datetime, chance: random.Random) -> datetime:
    """A moment of the last days, more often by day than by night, never ahead of now."""
    while True:
        at = now - timedelta(minutes=20 + chance.random() * DAYS * 24 * 60)
        if chance.random() < (1.0 if 7 <= at.hour < 19 else 0.15):
            return at.replace(microsecond=0)


def _hours() -> dict[datetime, int]:
    """In which hour how many invented items were taken."""
    found: dict[datetime, int] = {}
    for received_at in LedgerItem.objects.filter(item_id__startswith=MARK).values_list("received_at", flat=True):
        hour = outcomes.hour_of(received_at)
        found[hour] = found.get(hour, 0) + 1
    return found
