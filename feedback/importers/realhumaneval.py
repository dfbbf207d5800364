"""RealHumanEval (arXiv 2404.02806): programmers asking assistants for code, and what they copied of the answers.

Reads `chat_data.csv.gz`: one row is one turn; a session is (programmer, task, model) in order of time. A copy event is
a signal `copy`; an answer of which nothing was copied was shown and ignored. Times in the file are seconds since the
programmer began, so they are counted from EPOCH. Ids are made from the content, so importing again changes nothing.
"""

import ast
import csv
import gzip
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.utils import timezone

from feedback.services.label import label_turns
from feedback.services.record import record_items
from feedback.wire import Item, SignalItem, TurnItem
from registry.errors import InvalidInput
from registry.tenancy import tenant

FILE = "chat_data.csv.gz"
COLUMNS = {"request", "response", "copy_events", "logprobs", "programmer_id", "timestamp", "model", "task_name"}
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
ROWS_AT_ONCE = 200
SIGNAL_DELAY = timedelta(seconds=1)  # the file does not say when; after the answer, in the order of the events


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSummary:
    turns: int  # in the file
    signals: int
    sessions: int
    users: int
    outcomes: dict[str, int]  # of turns and signals together


def import_realhumaneval(
    project_id: UUID, folder: Path, *, on_progress: Callable[[int, int], None] = lambda done, of: None
) -> ImportSummary:
    """Record every turn and signal of the folder and label the turns; `on_progress(turns done, turns in all)`.

    Raises InvalidInput when the folder has no such file, or naming the row that is not as the study published it.
    """
    rows = read_rows(folder)
    outcomes: dict[str, int] = {}
    num_signals = 0
    for start in range(0, len(rows), ROWS_AT_ONCE):
        chunk = rows[start : start + ROWS_AT_ONCE]
        items = [item for row in chunk for item in items_of(row)]
        receipt = record_items(project_id, items, received_at=timezone.now())
        for outcome, number in receipt.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + number
        num_signals += len(items) - len(chunk)
        with tenant(project_id):
            label_turns(project_id, [row.id for row in chunk], now=timezone.now())
        on_progress(start + len(chunk), len(rows))
    return ImportSummary(
        turns=len(rows),
        signals=num_signals,
        sessions=len({row.session for row in rows}),
        users=len({row.programmer for row in rows}),
        outcomes=outcomes,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One turn of the file."""

    id: str
    session: str
    index: int  # place in its session
    at: datetime
    programmer: str
    model: str
    task: str
    messages: list[dict[str, Any]]
    response: str
    copied: list[dict[str, str]]  # type of copying, and the text
    logprob_summary: dict[str, float]  # of the response as a whole, not per token


def read_rows(folder: Path) -> list[Row]:
    """All turns, those of a session together and in order of time."""
    file = folder / FILE
    if not file.is_file():
        raise InvalidInput(f"there is no {FILE} in {folder}; give the folder of the data set", field="folder")
    with gzip.open(file, "rt", encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle)
        missing = COLUMNS - set(reader.fieldnames or ())
        if missing:
            raise InvalidInput(f"{FILE} lacks the columns {', '.join(sorted(missing))}", field="folder")
        raw = sorted(reader, key=lambda row: (*_session_key(row), float(row["timestamp"])))
    return list(_rows(raw))


def _rows(raw: Sequence[dict[str, str]]) -> Iterator[Row]:
    previous, index = None, 0
    for number, row in enumerate(raw, start=1):
        key = _session_key(row)
        index = index + 1 if key == previous else 0
        previous = key
        try:
            yield _row(row, key, index)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise InvalidInput(
                f"row {number} of {'/'.join(key)} is not as published: {error}", field="folder"
            ) from error


def _row(row: dict[str, str], key: tuple[str, str, str], index: int) -> Row:
    programmer, task, model = key
    session = f"rhe-{_digest(*key)}"
    return Row(
        id=f"rhe-{_digest(*key, row['timestamp'], row['response'])}",
        session=session,
        index=index,
        at=EPOCH + timedelta(seconds=float(row["timestamp"])),
        programmer=programmer,
        model=model,
        task=task,
        messages=ast.literal_eval(row["request"]),
        response=row["response"],
        copied=ast.literal_eval(row["copy_events"]),
        logprob_summary=ast.literal_eval(row["logprobs"]),
    )


def _session_key(row: dict[str, str]) -> tuple[str, str, str]:
    return row["programmer_id"], row["task_name"], row["model"]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def items_of(row: Row) -> list[Item]:
    """The turn and its signals: one `copy` per copy event, or `shown` and `ignore` when there was none."""
    turn = TurnItem(
        id=row.id,
        session=row.session,
        index=row.index,
        at=row.at,
        model=row.model,
        messages=row.messages,
        completion=row.response,
        surface="chat",
        language="python",
        user=row.programmer,
        source="import",
        metadata={"data_set": "realhumaneval", "task": row.task, "logprob_summary": row.logprob_summary},
    )
    said = [("copy", event) for event in row.copied] or [("shown", {}), ("ignore", {})]
    return [turn, *(_signal(row, place, kind, dict(event)) for place, (kind, event) in enumerate(said))]


def _signal(row: Row, place: int, kind: str, event: dict[str, str]) -> SignalItem:
    return SignalItem(
        id=f"{row.id}-{kind}-{place}",
        turn=row.id,
        kind=kind,
        at=row.at + SIGNAL_DELAY + timedelta(milliseconds=place),
        text=event.get("copied"),
        user=row.programmer,
        source="import",
        metadata={"type": event["type"]} if "type" in event else {},
    )
