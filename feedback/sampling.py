"""A bounded, repeatable sample of the turns of a time range. Inside a tenant; reads only."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F

from feedback.models import Turn

MAX_TURNS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledTurns:
    """Example: 24,310 turns in the range, at most 2,000 wanted -> every 13th by its key."""

    turns: list[Turn]  # with their labels, newest first
    num_in_range: int
    every: int  # 1: all of them


def sample_turns(
    *, since: datetime, until: datetime, max_turns: int = MAX_TURNS, is_settled: bool = False
) -> SampledTurns:
    """Turns made in [since, until): all of them, or every k-th, the same ones each time."""
    found = Turn.objects.filter(at__gte=since, at__lt=until)
    if is_settled:
        found = found.filter(settled_at__isnull=False)
    number = found.count()
    every = max(1, -(-number // max_turns))
    if every > 1:
        found = found.alias(place=F("id") % every).filter(place=0)
    turns = list(found.select_related("label").order_by("-at", "-id")[:max_turns])
    return SampledTurns(turns=turns, num_in_range=number, every=every)
