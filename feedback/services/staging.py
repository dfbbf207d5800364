"""Rows on their way into the tenant tables: COPY into temporary tables, then INSERT ... SELECT.

Row-level security forbids COPY into the tables themselves. The temporary tables live as long as the connection and are
emptied at every commit. Every insert is in the order of the sender's ids, so that no two requests wait for each other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID
from weakref import WeakSet

import msgspec
from django.db import connection, transaction

from feedback.conduct import conduct_of
from feedback.wire import SignalItem, TurnItem, Usage

_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS feedback_staged_turn (
  turn_id text, session text, index int, at timestamptz, policy text, version int, model text, "group" text,
  problem text, surface text, language text, "user" text, source text, sampling jsonb, finish_reason text, error text,
  input_tokens int, cache_read_tokens int, cache_write_tokens int, output_tokens int, reasoning_tokens int,
  ttft_ms float8, latency_ms float8, num_completion_chars int, has_logprobs bool, is_shown bool,
  has_bad_call bool, asks_back bool, is_without_edit bool,
  messages jsonb, prompt text, completion text, tool_calls jsonb, prompt_token_ids int[], completion_token_ids int[],
  logprobs float8[], weight_versions jsonb, routed_experts jsonb, metadata jsonb) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS feedback_staged_signal (
  signal_id text, turn_ref text, session_ref text, kind text, value float8, text text, at timestamptz, "user" text,
  supersedes text, metadata jsonb) ON COMMIT DELETE ROWS;
"""
_have_tables: WeakSet[Any] = WeakSet()  # connections to PostgreSQL, which keep them
_TURN_COLUMNS = (
    'index, at, policy, version, model, "group", problem, surface, language, "user", source, sampling, finish_reason, '
    "error, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, ttft_ms, latency_ms, "
    "num_completion_chars, has_logprobs, is_shown, has_bad_call, asks_back, is_without_edit"
)
_PAYLOAD_COLUMNS = (
    "turn_id, at, messages, prompt, completion, tool_calls, prompt_token_ids, completion_token_ids, logprobs, "
    "weight_versions, routed_experts, metadata"
)
_SIGNAL_COLUMNS = 'signal_id, turn_ref, session_ref, kind, value, text, at, "user", supersedes, metadata'


def stage(turns: Sequence[TurnItem], signals: Sequence[SignalItem]) -> None:
    """Fill the empty temporary tables with these items."""
    with connection.cursor() as cursor:
        if connection.connection not in _have_tables:
            cursor.execute(_TABLES)
            server = connection.connection
            transaction.on_commit(lambda: _have_tables.add(server))
        if turns:
            _copy(cursor, "COPY feedback_staged_turn FROM STDIN", map(_turn_line, turns))
        if signals:
            _copy(cursor, "COPY feedback_staged_signal FROM STDIN", map(_signal_line, signals))


@dataclass(frozen=True, kw_only=True, slots=True)
class Inserted:
    """How signals and turns found each other."""

    joined: list[str]  # ids of turns that signals had waited for
    num_orphans: int  # signals, of those just inserted, that wait for their turn


def insert(project_id: UUID, *, received_at: datetime, settle_due: datetime) -> Inserted:
    """Sessions, turns, payloads and signals from what is staged, joined, and the tables emptied, in one round trip."""
    names = {"project": project_id, "received_at": received_at, "settle_due": settle_due}
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, names)
        answers = []
        while True:
            if cursor.description is not None:
                answers.append(cursor.fetchall())
            if not cursor.nextset():
                break
    joined, ((num_orphans,),) = answers
    return Inserted(joined=[row[0] for row in joined], num_orphans=num_orphans)


_INSERT = f"""
INSERT INTO feedback_agentsession (project_id, session_id, "user", surface, first_at, last_at, num_turns)
SELECT %(project)s, session, min("user"), min(surface), min(at), max(at), count(*)
FROM feedback_staged_turn GROUP BY session ORDER BY session
ON CONFLICT (project_id, session_id) DO UPDATE SET
  "user" = least(feedback_agentsession."user", excluded."user"),
  surface = least(feedback_agentsession.surface, excluded.surface),
  first_at = least(feedback_agentsession.first_at, excluded.first_at),
  last_at = greatest(feedback_agentsession.last_at, excluded.last_at),
  num_turns = feedback_agentsession.num_turns + excluded.num_turns;

INSERT INTO feedback_turn (project_id, turn_id, session_id, received_at, settle_due, is_excluded, {_TURN_COLUMNS})
SELECT %(project)s, turn_id,
  (SELECT id FROM feedback_agentsession a WHERE a.project_id = %(project)s AND a.session_id = staged.session),
  %(received_at)s, CASE WHEN is_shown THEN %(settle_due)s::timestamptz END, false, {_TURN_COLUMNS}
FROM feedback_staged_turn staged ORDER BY turn_id;

INSERT INTO feedback_turnpayload (project_id, {_PAYLOAD_COLUMNS})
SELECT %(project)s, {_PAYLOAD_COLUMNS} FROM feedback_staged_turn ORDER BY turn_id;

UPDATE feedback_usersignal waiting SET turn_id = turn.id
FROM feedback_staged_turn staged
JOIN feedback_turn turn ON turn.project_id = %(project)s AND turn.turn_id = staged.turn_id
WHERE waiting.project_id = %(project)s AND waiting.turn_ref = staged.turn_id
  AND waiting.turn_id IS NULL AND waiting.expired_at IS NULL
RETURNING waiting.turn_ref;

WITH inserted AS (
  INSERT INTO feedback_usersignal (project_id, received_at, turn_id, {_SIGNAL_COLUMNS})
  SELECT %(project)s, %(received_at)s,
    (SELECT id FROM feedback_turn t WHERE t.project_id = %(project)s AND t.turn_id = staged.turn_ref), {_SIGNAL_COLUMNS}
  FROM feedback_staged_signal staged ORDER BY signal_id
  RETURNING turn_ref, turn_id)
SELECT count(*) FROM inserted WHERE turn_ref IS NOT NULL AND turn_id IS NULL;

DELETE FROM feedback_staged_turn;
DELETE FROM feedback_staged_signal;
"""  # noqa: S608 - the columns are constants


def join_waiting(project_id: UUID, turn_refs: Sequence[str]) -> None:
    """Join signals to turns that both arrived, each before the other was committed."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE feedback_usersignal waiting SET turn_id = turn.id FROM feedback_turn turn
            WHERE turn.project_id = %s AND waiting.project_id = %s AND waiting.turn_ref = turn.turn_id
              AND waiting.turn_ref = ANY(%s) AND waiting.turn_id IS NULL AND waiting.expired_at IS NULL
            """,
            [project_id, project_id, list(turn_refs)],
        )


def _copy(cursor: Any, statement: str, lines: Iterable[str]) -> None:
    with connection.wrap_database_errors, cursor.copy(statement) as copy:
        copy.write("".join(lines).encode())


_NO_USAGE = Usage()


def _turn_line(turn: TurnItem) -> str:
    usage = turn.usage or _NO_USAGE
    completion = turn.completion or ""
    conduct = conduct_of(completion=completion, tool_calls=turn.tool_calls, is_chat=turn.messages is not None)
    return _line(
        _text(turn.id), _text(turn.session), str(turn.index), turn.at.isoformat(), _text(turn.policy),
        _number(turn.version), _text(turn.model), _text(turn.group), _text(turn.problem), _text(turn.surface),
        _text(turn.language), _text(turn.user), turn.source, _json(turn.sampling), _text(turn.finish_reason),
        _text(turn.error), _number(usage.input), _number(usage.cache_read), _number(usage.cache_write),
        _number(usage.output), _number(usage.reasoning), _number(turn.ttft_ms), _number(turn.latency_ms),
        str(len(completion)), _flag(turn.has_logprobs), _flag(turn.is_shown),
        _flag(conduct.has_bad_call if conduct else None), _flag(conduct.asks_back if conduct else None),
        _flag(conduct.is_without_edit if conduct else None),
        _json(turn.messages),
        _text(turn.prompt), _text(completion), _json(turn.tool_calls), _array(turn.prompt_token_ids),
        _array(turn.completion_token_ids),
        _array(turn.logprobs), _json(turn.weight_versions), _json(turn.routed_experts), _json(turn.metadata),
    )  # fmt: skip


def _signal_line(signal: SignalItem) -> str:
    metadata = signal.metadata if signal.metric is None else {**signal.metadata, "metric": signal.metric}
    return _line(
        _text(signal.id), _text(signal.turn), _text(signal.session), _text(signal.kind), _number(signal.value),
        _text(signal.text), signal.at.isoformat(), _text(signal.user), _text(signal.supersedes), _json(metadata),
    )  # fmt: skip


def _line(*fields: str) -> str:
    return "\t".join(fields) + "\n"


_NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def _text(value: str | None) -> str:
    return _NULL if value is None else value.translate(_ESCAPES)


def _number(value: float | None) -> str:
    return _NULL if value is None else repr(value)


def _flag(value: bool | None) -> str:
    return _NULL if value is None else "t" if value else "f"


def _json(value: Any) -> str:
    return _NULL if value is None else msgspec.json.encode(value).decode().replace("\\", "\\\\")


def _array(values: Sequence[float] | None) -> str:
    return _NULL if values is None else "{" + ",".join(map(repr, values)) + "}"
