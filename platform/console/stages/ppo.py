"""Of PPO: the reward model's score and that of who watches, over the distance from the base."""

from typing import Any

from console.charts import judging
from rl_online.models import RewardModel, UpdateMetric, UpdateRun
from rl_online.training.overoptimisation import best_of, curve_of, should_stop


def context(run: UpdateRun) -> dict[str, Any]:
    rows = list(UpdateMetric.objects.filter(run=run).order_by("step").values_list("values", flat=True))
    points = curve_of(rows)
    is_stopped = should_stop(points, margin=run.config["gold_margin"])
    known = {str(row.pk): row for row in RewardModel.objects.filter(policy=run.policy).select_related("run", "policy")}
    return {
        "judges": [(name, known.get(run.inputs.get(name, ""))) for name in ("reward_model", "gold")],
        "points": points,
        "best": best_of(points) if points else None,
        "is_stopped": is_stopped,
        "kl_coefficient": run.config["ppo_kl"],
        "margin": run.config["gold_margin"],
        "figure": judging.over_optimisation(points, is_stopped=is_stopped),
    }
