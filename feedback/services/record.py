"""Take items in: ledger, sessions, turns, payloads, signals, counts and the job that labels them, in one transaction.

Accepted means stored: the receipt is returned after the commit. The ledger decides what is new: an id seen before is a
duplicate when its body is the same and a conflict when not, within a request as across requests.
"""

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError, connection, transaction
from prometheus_client import Counter

from feedback import wire
from feedback.services import door, outcomes, problem_links, staging
from feedback.wire import Item, Refusal, SignalItem, TurnItem
from jobs import crash
from jobs.services import enqueue
from registry.errors import Unavailable
from registry.tenancy import tenant

LABEL_JOB = "feedback.label"
TURNS_PER_JOB = 2000
RETRY_AFTER_S = 2
RECEIVED = Counter("strop_ingest_outcomes", "Items by outcome at the door.", ["outcome"])

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemOutcome:
    """What became of the item at this place of the request."""

    index: int
    id: str | None  # None when there was none to read
    outcome: wire.Outcome
    field: str | None = None  # which field is wrong, for refusals
    message: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What became of every item of one request."""

    items: list[ItemOutcome]  # in the order sent
    orphans: int  # accepted signals still waiting for their turn

    @property
    def outcomes(self) -> dict[str, int]:
        """How many items ended in which outcome; the sum is the number received."""
        return dict(collections.Counter(item.outcome for item in self.items))


def record_items(project_id: UUID, items: Sequence[Item | Refusal], *, received_at: datetime) -> Receipt:
    """Store what is new; raises Unavailable when the database could not, and then nothing of it is stored."""
    receipt = _whole(lambda: _record(project_id, items, received_at))
    crash.point("ingest.after_commit")
    for outcome, number in receipt.outcomes.items():
        RECEIVED.labels(outcome).inc(number)
    return receipt


def record_turns(project_id: UUID, turns: Sequence[TurnItem], *, received_at: datetime) -> Receipt:
    """Store turns that our own gateway made: typed already, with anything unstorable in their text replaced."""
    return record_items(project_id, [wire.storable(turn) for turn in turns], received_at=received_at)


def _whole(work: Callable[[], T]) -> T:
    """Do it, and once more from the start after a deadlock or a lost connection; never half of it."""
    if connection.in_atomic_block:
        return work()  # the caller's transaction is the whole
    try:
        return work()
    except (OperationalError, InterfaceError):
        connection.close_if_unusable_or_obsolete()
    try:
        return work()
    except (OperationalError, InterfaceError) as error:
        raise Unavailable("the database is not available", retry_after_s=RETRY_AFTER_S) from error


def _record(project_id: UUID, items: Sequence[Item | Refusal], received_at: datetime) -> Receipt:
    with tenant(project_id):
        checked = _without_refused_links(items)
        digests = [None if isinstance(item, Refusal) else wire.body_hash(item) for item in checked]
        offered: dict[str, tuple[Item, bytes]] = {}  # the first of each id
        for item, digest in zip(checked, digests, strict=True):
            if digest is not None:
                offered.setdefault(item.id, (item, digest))  # type: ignore[arg-type]
        _ensure_months(item.at for item, _ in offered.values() if isinstance(item, TurnItem))
        known = _claim(project_id, offered, received_at)
        fresh = [item for item, _ in offered.values() if item.id not in known]
        num_orphans = _store(project_id, fresh, received_at)
        receipt = Receipt(items=_outcomes(checked, digests, offered, known), orphans=num_orphans)
        outcomes.count(project_id, received_at, receipt.outcomes)
        crash.point("ingest.before_commit")
    return receipt


def _without_refused_links(items: Sequence[Item | Refusal]) -> list[Item | Refusal]:
    links = {item.problem for item in items if isinstance(item, TurnItem) and item.problem}
    reasons = problem_links.refused(links) if links else {}
    return [
        Refusal(id=item.id, outcome="invalid", field="problem", message=reasons[item.problem])
        if isinstance(item, TurnItem) and item.problem in reasons
        else item
        for item in items
    ]


def _claim(project_id: UUID, offered: Mapping[str, tuple[Item, bytes]], received_at: datetime) -> dict[str, bytes]:
    """Enter new ids in the ledger; returns {id: body hash} of those that were there already.

    Waits for another request that is just storing one of the ids, and then counts it as there.
    """
    kinds = ["turn" if isinstance(item, TurnItem) else "signal" for item, _ in offered.values()]
    hashes = [digest for _, digest in offered.values()]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO feedback_ledgeritem (project_id, item_id, kind, body_hash, outcome, received_at)
            SELECT %s, given.id, given.kind, given.hash, 'accepted', %s
            FROM unnest(%s::text[], %s::text[], %s::bytea[]) AS given(id, kind, hash) ORDER BY given.id
            ON CONFLICT (project_id, item_id) DO NOTHING RETURNING item_id
            """,
            [project_id, received_at, list(offered), kinds, hashes],
        )
        old = offered.keys() - {row[0] for row in cursor.fetchall()}
        if not old:
            return {}
        cursor.execute(
            "SELECT item_id, body_hash FROM feedback_ledgeritem WHERE project_id = %s AND item_id = ANY(%s)",
            [project_id, sorted(old)],
        )
        return {name: bytes(digest) for name, digest in cursor.fetchall()}


def _outcomes(
    checked: Sequence[Item | Refusal],
    digests: Sequence[bytes | None],
    offered: Mapping[str, tuple[Item, bytes]],
    known: Mapping[str, bytes],
) -> list[ItemOutcome]:
    results = []
    for index, (item, digest) in enumerate(zip(checked, digests, strict=True)):
        if isinstance(item, Refusal):
            results.append(
                ItemOutcome(index=index, id=item.id, outcome=item.outcome, field=item.field, message=item.message)
            )
            continue
        first, stored = offered[item.id]
        if item is first and item.id not in known:
            results.append(ItemOutcome(index=index, id=item.id, outcome="accepted"))
        elif digest == known.get(item.id, stored):
            results.append(ItemOutcome(index=index, id=item.id, outcome="duplicate"))
        else:
            message = "this id was sent before with another body; the first one stands"
            results.append(ItemOutcome(index=index, id=item.id, outcome="conflict", field="id", message=message))
    return results


def _store(project_id: UUID, fresh: Sequence[Item], received_at: datetime) -> int:
    """Write new items and the jobs that label their turns; returns how many signals wait for their turn."""
    if not fresh:
        return 0
    turns = [item for item in fresh if isinstance(item, TurnItem)]
    signals = [item for item in fresh if isinstance(item, SignalItem)]
    staging.stage(turns, signals)
    window = door.look_at(project_id).decision_window
    inserted = staging.insert(project_id, received_at=received_at, settle_due=received_at + window)
    # A signal that was being stored at the same moment as its turn is joined when the turn settles.
    touched = sorted({signal.turn for signal in signals if signal.turn} | set(inserted.joined))
    for start in range(0, len(touched), TURNS_PER_JOB):
        enqueue(LABEL_JOB, project_id=project_id, payload={"turns": touched[start : start + TURNS_PER_JOB]})
    return inserted.num_orphans


_months_made: set[datetime] = set()


def _ensure_months(moments: Iterable[datetime]) -> None:
    """Make the partitions of these months first of all, while nothing else is locked."""
    wanted = {moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0) for moment in moments}
    missing = sorted(wanted - _months_made)
    with connection.cursor() as cursor:
        for month in missing:
            cursor.execute("SELECT feedback_ensure_payload_month(%s)", [month])
    if missing:
        transaction.on_commit(lambda: _months_made.update(missing))
