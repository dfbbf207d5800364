"""The list of turns: what can be asked of it, how its rows are found, counted and exported."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.lists.keys import checkpoint_of, found_in_text, turn_fields
from console.query import Field, Fields
from feedback.models import Flag, FlagState, Turn, TurnPayload, UserSignal

FIELDS = Fields(
    Field("turn", column="turn_id", help="its id"),
    Field("session", column="session__session_id", help="id of its session"),
    Field("user", help="end user, or a beginning with *"),
    Field("surface", help="part of the product"),
    *turn_fields(),
    search=lambda text: Q(turn_id=text) | found_in_text(text),
)
COLUMNS = (
    Column(name="at", title="When", sort="at", is_time=True),
    Column(name="asked", title="Asked"),
    Column(name="completion", title="Model wrote"),
    Column(name="outcome", title="Outcome"),
    Column(name="signals", title="Signals", hint="kinds of the signals it got, with how many"),
    Column(name="checkpoint", title="Answered by"),
    Column(name="user", title="User"),
    Column(name="surface", title="Surface", is_default=False),
    Column(name="language", title="Language", is_default=False),
    Column(name="source", title="Source", is_default=False),
    Column(name="problem", title="Problem", is_default=False),
    Column(name="input_tokens", sort="input_tokens", title="Tokens in", is_number=True, is_default=False),
    Column(name="output_tokens", sort="output_tokens", title="Tokens out", is_number=True),
    Column(name="ttft_ms", sort="ttft_ms", title="First token, ms", is_number=True, is_default=False),
    Column(name="latency_ms", sort="latency_ms", title="Latency, ms", is_number=True),
    Column(name="flags", title="Open flags", is_number=True),
    Column(name="label", title="Why the label", is_default=False),
    Column(name="session", title="Session", is_default=False),
    Column(name="turn", title="Id", is_default=False),
)
EXPORTED = (
    "turn", "session", "index", "at", "checkpoint", "model", "user", "surface", "language", "source", "problem",
    "group", "outcome", "label_value", "label_reason", "settled_at", "is_shown", "is_excluded", "reward_override",
    "finish_reason", "error", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens",
    "reasoning_tokens", "ttft_ms", "latency_ms", "has_logprobs", "messages", "prompt", "completion", "tool_calls",
    "metadata",
)  # fmt: skip
FACETS = (
    Counted(
        name="outcome", title="Outcome", columns=("outcome", "settled_at?"), value=lambda o, s: o if s else "unsettled"
    ),
    Counted(name="checkpoint", title="Answered by", columns=("policy", "version", "model"), value=checkpoint_of),
    Counted(name="source", title="Source", columns=("source",)),
    Counted(name="surface", title="Surface", columns=("surface",)),
    Counted(name="language", title="Language", columns=("language",)),
    Counted(name="finish", title="Ended by", columns=("finish_reason",)),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRow:
    turn: Turn
    payload: TurnPayload | None  # None: its text is not kept
    signals: dict[str, int]  # kind -> how many
    num_flags: int  # open

    @property
    def asked(self) -> str | None:
        """The last thing said before the completion."""
        if self.payload is None:
            return None
        if self.payload.prompt is not None:
            return self.payload.prompt
        last = (self.payload.messages or [{}])[-1]
        content = last.get("content") if isinstance(last, dict) else last
        return content if isinstance(content, str) or content is None else str(content)


def newest_turn() -> datetime | None:
    return Turn.objects.order_by("-at").values_list("at", flat=True).first()


def matching(asked: Asked) -> QuerySet[Turn]:
    return Turn.objects.filter(asked.time_range.within("at"), asked.query.condition())


def find(asked: Asked) -> Found:
    return keyset_page(matching(asked).select_related("session", "label"), asked, wrap=_rows)


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="at")


def exported(asked: Asked) -> QuerySet[Turn]:
    return matching(asked).select_related("session", "label")


def export_rows(turns: Sequence[Turn]) -> list[tuple[Any, ...]]:
    payloads = payloads_of(turns)
    return [_exported(turn, payloads.get(turn.turn_id)) for turn in turns]


def payloads_of(turns: Sequence[Turn]) -> dict[str, TurnPayload]:
    if not turns:
        return {}
    times = [turn.at for turn in turns]
    # Bounding `at` lets PostgreSQL skip every other month's partition.
    found = TurnPayload.objects.filter(
        project_id=turns[0].project_id, turn_id__in=[turn.turn_id for turn in turns], at__range=(min(times), max(times))
    )
    wanted = found.only("project_id", "turn_id", "at", "messages", "prompt", "completion", "tool_calls", "metadata")
    return {payload.turn_id: payload for payload in wanted}


def _rows(turns: Sequence[Turn]) -> list[TurnRow]:
    payloads = payloads_of(turns)
    signals: dict[int, dict[str, int]] = {turn.pk: {} for turn in turns}
    kinds = UserSignal.objects.filter(turn__in=list(signals)).values_list("turn_id", "kind").annotate(n=Count("id"))
    for turn_id, kind, n in kinds.order_by("turn_id", "kind"):
        signals[turn_id][kind] = n
    flags = Flag.objects.filter(turn__in=list(signals), state=FlagState.OPEN).values_list("turn_id")
    open_flags = dict(flags.annotate(n=Count("id")))
    return [
        TurnRow(
            turn=turn,
            payload=payloads.get(turn.turn_id),
            signals=signals[turn.pk],
            num_flags=open_flags.get(turn.pk, 0),
        )
        for turn in turns
    ]


def _exported(turn: Turn, payload: TurnPayload | None) -> tuple[Any, ...]:
    label = turn.label
    return (
        turn.turn_id, turn.session.session_id, turn.index, turn.at, turn.checkpoint, turn.model, turn.user,
        turn.surface, turn.language, turn.source, turn.problem, turn.group, turn.outcome, label and label.value,
        label and label.reason, turn.settled_at, turn.is_shown, turn.is_excluded, turn.reward_override,
        turn.finish_reason, turn.error, turn.input_tokens, turn.cache_read_tokens, turn.cache_write_tokens,
        turn.output_tokens, turn.reasoning_tokens, turn.ttft_ms, turn.latency_ms, turn.has_logprobs, *_text(payload),
    )  # fmt: skip


def _text(payload: TurnPayload | None) -> tuple[Any, ...]:
    if payload is None:
        return (None,) * 5
    return payload.messages, payload.prompt, payload.completion, payload.tool_calls, payload.metadata


TURNS = ListKind(
    name="turns",
    noun="turn",
    title="Turns",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_turn,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=exported, values=export_rows),
    rows_template="turns/_rows.html",
    empty_template="turns/_empty.html",
    bulk_template="partials/flag_ticked.html",
    example='outcome:reject -source:import latency_ms:>900 has:signal "off by one"',
)
