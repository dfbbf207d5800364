"""Of a distillation: the terms of its loss, each with its coefficient and how far the policy is, and what it forgot."""

from dataclasses import dataclass
from typing import Any

from console.charts import updates as plots
from rl_online.gate.forgetting import check_forgetting
from rl_online.models import LearningPlan, UpdateMetric, UpdateRun
from rl_online.rewards.update_config import UpdateConfig
from rl_online.services.forgetting import forgetting_of
from rl_online.services.plans import gate_limits


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One part of the loss."""

    title: str
    coefficient: float | None  # None: it has none
    distance: str  # what the coefficient multiplies
    first: float | None  # its value before the first step and before the last; None: not a part of this update
    last: float | None
    loss: float | None  # its part of the last step's loss
    figure: dict[str, Any] | None


def context(run: UpdateRun) -> dict[str, Any]:
    rows = list(UpdateMetric.objects.filter(run=run).order_by("step"))
    config = UpdateConfig.from_json(run.config)
    is_sampled = config.distills_sampled
    teacher = "l − log p(teacher)" if is_sampled else _divergence(config.distill_beta)
    return {
        "teacher": run.inputs.get("teacher", ""),
        "terms": [
            _term(run, rows, "Teacher", config.distill_weight, teacher, "kl_teacher", "loss_distill"),
            _term(run, rows, "Reward", None, "advantage" + (", the teacher's in it" if is_sampled else ""),
                  "advantage", "loss_rl"),
            _term(run, rows, "Base", config.base_kl, "KL(policy to base)", "kl_base", "loss_ref_kl"),
        ],
        "forgetting": _forgetting(run),
    }  # fmt: skip


def _divergence(beta: float) -> str:
    return {0.0: "KL(teacher to policy)", 1.0: "KL(policy to teacher)"}.get(beta, f"JSD at beta {beta:g}")


def _term(
    run: UpdateRun,
    rows: list[UpdateMetric],
    title: str,
    coefficient: float | None,
    distance: str,
    measured: str,
    part: str,
) -> Term:
    values = [row.values.get(measured) for row in rows]
    known = [value for value in values if value is not None]
    heldout = [row.values.get(f"heldout_{measured}") for row in rows]
    return Term(
        title=title,
        coefficient=coefficient,
        distance=distance,
        first=known[0] if known else None,
        last=known[-1] if known else None,
        loss=rows[-1].values.get(part) if rows else None,
        figure=plots.curve(
            [row.step for row in rows],
            values,
            name=distance,
            version=run.version,
            heldout=heldout if any(value is not None for value in heldout) else None,
        )
        if known
        else None,
    )


def _forgetting(run: UpdateRun) -> str | None:
    """In words; None while there is no checkpoint to have forgotten anything."""
    if run.checkpoint is None:
        return None
    limits = gate_limits(LearningPlan.objects.get(policy=run.policy))
    return check_forgetting(forgetting_of(run.checkpoint), limits).sentence
