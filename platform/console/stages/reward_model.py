"""Of a reward model: how often it is right on people it never saw, how sure it may be, whether it counts tokens."""

from typing import Any

from console.charts import judging
from rl_online.models import RewardModel, UpdateRun


def context(run: UpdateRun) -> dict[str, Any]:
    row = RewardModel.objects.filter(run=run).first()
    if row is None:
        return {"model": None}
    report = row.report
    return {
        "model": row,
        "report": report,
        "shares": [
            ("All pairs", report["accuracy"]),
            ("The shorter answer was liked", report["shorter_wins"]),
            ("The longer answer was liked", report["longer_wins"]),
        ],
        "reliability": judging.reliability(report["bins"]),
    }
