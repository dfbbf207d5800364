"""One turn with what came before it, as a reader needs it to judge the answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from console.reads.tool_calls import tool_calls
from feedback.models import Turn, TurnPayload

EARLIER = 6  # turns of the session before the one that is judged
MESSAGES = 40  # of a prompt; longer ones show their end


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    role: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One turn as it was said."""

    turn: Turn
    payload: TurnPayload | None  # None: its text is not kept
    said: list[Said]  # messages of its prompt that no exchange before shows
    num_repeated: int  # messages that one before shows
    num_left_out: int  # older messages of a very long prompt


def transcript(turn: Turn) -> list[Exchange]:
    """The turns before it in its session, oldest first, and it itself as the last. Two queries."""
    earlier = Turn.objects.filter(
        Q(index__lt=turn.index) | Q(index=turn.index, at__lt=turn.at), session=turn.session_id
    ).order_by("-index", "-at", "-id")[:EARLIER]
    turns = [*reversed(earlier), turn]
    times = [one.at for one in turns]
    # Bounding `at` lets PostgreSQL skip every other month's partition.
    payloads = TurnPayload.objects.filter(
        project_id=turn.project_id, turn_id__in=[one.turn_id for one in turns], at__range=(min(times), max(times))
    ).only("project_id", "turn_id", "at", "messages", "prompt", "completion", "tool_calls")
    return told_apart(turns, {payload.turn_id: payload for payload in payloads})


def last_asked(payload: TurnPayload | None) -> str | None:
    """The last thing said before the completion; None when the text is not kept."""
    if payload is None:
        return None
    said = _messages(payload)
    return said[-1].text if said else None


def told_apart(turns: Sequence[Turn], payloads: dict[str, TurnPayload]) -> list[Exchange]:
    """A chat repeats its past in every prompt: of each prompt what the exchange before did not show already."""
    shown: list[Said] = []
    found = []
    for turn in turns:
        payload = payloads.get(turn.turn_id)
        if payload is None:
            found.append(Exchange(turn=turn, payload=None, said=[], num_repeated=0, num_left_out=0))
            continue
        messages = _messages(payload)
        num_repeated = len(shown) if shown and messages[: len(shown)] == shown else 0
        new = messages[num_repeated:]
        found.append(
            Exchange(
                turn=turn,
                payload=payload,
                said=new[-MESSAGES:],
                num_repeated=num_repeated,
                num_left_out=max(0, len(new) - MESSAGES),
            )
        )
        shown = [*messages, Said(role="assistant", text=payload.completion)]
    return found


def _messages(payload: TurnPayload) -> list[Said]:
    if payload.prompt is not None:
        return [Said(role="prompt", text=payload.prompt)]
    return [_said(message) for message in payload.messages or []]


def _said(message: Any) -> Said:
    """Parts that are not text are named, not shown; calls of tools are written as calls."""
    if not isinstance(message, dict):
        return Said(role="unknown", text=str(message))
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(
            str(part.get("text", f"[{part.get('type', 'part')}]")) if isinstance(part, dict) else str(part)
            for part in content
        )
    called = [str(call) for call in tool_calls(message.get("tool_calls"))]
    text = "" if content is None else str(content)
    return Said(role=str(message.get("role", "unknown")), text="\n".join([*filter(None, [text]), *called]))
