"""What a reviewer decides about a flagged turn. Inside a tenant; every decision is audited."""

import math

from django.db import transaction
from django.utils import timezone

from feedback.models import Flag, FlagResolution, FlagState, Turn
from registry.errors import Conflict, InvalidInput, NotFound
from registry.services import audit


def resolve_flag(
    flag: Flag | int,
    *,
    resolution: FlagResolution | str,
    reviewer: str,
    reward_override: float | None = None,
    note: str = "",
) -> Flag:
    """Settle an open flag: nothing to do, the turn out of training, or the reviewer's reward in [-1, 1] instead.

    Of two reviewers at once the first wins and the other gets Conflict. Raises NotFound, InvalidInput naming the field.
    """
    resolution = _resolution(resolution)
    _check_override(resolution, reward_override)
    with transaction.atomic():
        row = Flag.objects.select_for_update().filter(pk=flag if isinstance(flag, int) else flag.pk).first()
        if row is None:
            raise NotFound("no such flag")
        if row.state == FlagState.RESOLVED:
            raise Conflict(f"{row.reviewer} has resolved this flag as {row.resolution}")
        row.state, row.resolution, row.resolved_at = FlagState.RESOLVED, resolution, timezone.now()
        row.reward_override, row.note, row.reviewer = reward_override, note, reviewer
        row.save()
        turn = Turn.objects.select_for_update().get(pk=row.turn_id)
        before = _training(turn)
        if resolution is FlagResolution.EXCLUDED:
            turn.is_excluded = True
        elif resolution is FlagResolution.OVERRIDDEN:
            turn.reward_override = reward_override
        turn.save(update_fields=["is_excluded", "reward_override"])
        audit(
            "resolve",
            "flag",
            row.pk,
            actor=reviewer,
            before={"state": FlagState.OPEN, "turn": turn.turn_id, "rule": row.rule, **before},
            after={"state": row.state, "resolution": resolution, **_training(turn)},
            reason=note,
        )
    return row


def _training(turn: Turn) -> dict[str, bool | float | None]:
    return {"is_excluded": turn.is_excluded, "reward_override": turn.reward_override}


def _resolution(value: FlagResolution | str) -> FlagResolution:
    try:
        return FlagResolution(value)
    except ValueError:
        raise InvalidInput(
            f"found {value!r}; choose from {', '.join(FlagResolution.values)}", field="resolution"
        ) from None


def _check_override(resolution: FlagResolution, reward: float | None) -> None:
    if (resolution is FlagResolution.OVERRIDDEN) != (reward is not None):
        raise InvalidInput("a reward goes with `overridden`, and with nothing else", field="reward")
    if reward is not None and not (math.isfinite(reward) and -1 <= reward <= 1):
        raise InvalidInput(f"found {reward!r}; give a number from -1 to 1", field="reward")
