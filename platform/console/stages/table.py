"""What an update's page shows of its kind beyond what every update has, and nowhere else.

To add one: `context(run)` in `console.stages.<kind>`, its template `updates/_stage_<kind>.html` which prints it as
`stage`, and a line here.
"""

from collections.abc import Callable
from typing import Any

from console.stages import distill, midtrain, ppo, reward_model, sealed
from rl_online.models import UpdateKind, UpdateRun

CONTEXTS: dict[str, Callable[[UpdateRun], dict[str, Any]]] = {
    UpdateKind.MIDTRAIN: midtrain.context,
    UpdateKind.SFT: sealed.context,
    UpdateKind.PAIRS: sealed.context,
    UpdateKind.DISTILL: distill.context,
    UpdateKind.REWARD_MODEL: reward_model.context,
    UpdateKind.PPO: ppo.context,
}


def stage_part(run: UpdateRun) -> dict[str, Any]:
    """The template of the update's kind with its context; nothing for a kind without one."""
    if run.kind not in CONTEXTS:
        return {}
    return {"stage_template": f"updates/_stage_{run.kind}.html", "stage": CONTEXTS[run.kind](run)}
