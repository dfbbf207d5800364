"""What the loop does when the rooms below tell it something, in the transaction in which it happened."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from jobs.services import ClaimedJob, NotYet
from rl_online.services import scoring, updates


def on_turns_settled(sender: Any, *, project_id: UUID, turn_ids: Sequence[int], **_: Any) -> None:
    """Turns got a label: an update may be due, and those that name a problem can be scored by its tests."""
    updates.turns_settled(project_id)
    scoring.ask_for_scores(project_id, turn_ids)


def only_in_the_updater(job: ClaimedJob) -> None:
    """The queue `updater` is polled by the updater process alone, which puts its own handler in this one's place."""
    raise NotYet(5, "updates are trained by the updater process")
