"""Going through the steps of an update: from where a killed run was left, told to whoever watches, to the end."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import UpdateCancelled, UpdateDiverged, UpdateFailed
from rl_online.training.snapshots import History, Keeper

MAX_FAILED_STEPS = 3  # in a row that could not be taken: the update is diverging, more steps will not help


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where an update stands after a step."""

    step: int  # steps done, 0 before the first
    num_steps: int
    metrics: dict[str, float]  # of this step: loss, loss_<term>, reward, kl, ratio_mean, ..., heldout_loss, is_applied
    tokens_per_s: float  # prompt and completion tokens trained on, by the wall
    seconds_left: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """What the caller wants to hear and to say while an update runs."""

    on_progress: Callable[[Progress], None]
    is_cancelled: Callable[[], bool]
    crash: Callable[[str], None]  # called with the name of each point a test may kill the process at


def go_through(
    num_steps: int,
    take: Callable[[int, History], tuple[dict[str, float], int]],
    *,
    hooks: Hooks,
    keeper: Keeper,
    is_over: Callable[[History], bool] = lambda history: False,
) -> History:
    """The numbers of every step. `take` does one, counted from 1, and says its numbers and how many tokens it took.

    `is_over` ends it early. Raises UpdateDiverged when three steps in a row could not be taken, UpdateCancelled.
    """
    history = keeper.restore()
    started, num_before, num_tokens = time.monotonic(), len(history), 0
    hooks.on_progress(Progress(step=0, num_steps=num_steps, metrics={}, tokens_per_s=0.0, seconds_left=0.0))
    for step, metrics in enumerate(history, 1):  # whoever listens may have been killed too
        hooks.on_progress(
            Progress(step=step, num_steps=num_steps, metrics=finite(metrics), tokens_per_s=0.0, seconds_left=0.0)
        )
    while len(history) < num_steps and not is_over(history):
        step = len(history) + 1
        if hooks.is_cancelled():
            keeper.keep(history, is_stopping=True)
            raise UpdateCancelled(f"cancelled before step {step} of {num_steps}")
        metrics, num_new = take(step, history)
        history.append(metrics)
        num_tokens += num_new
        seconds = time.monotonic() - started
        hooks.on_progress(
            Progress(
                step=step,
                num_steps=num_steps,
                metrics=finite(metrics),
                tokens_per_s=num_tokens / seconds,
                seconds_left=seconds / (step - num_before) * (num_steps - step),
            )
        )
        if reason := diverged(history):
            raise UpdateDiverged(f"{reason}, up to step {step} of {num_steps}")
        keeper.keep(history)
    return history


def refuse_idle(history: Sequence[dict[str, float]]) -> None:
    """Where no step was applied, nothing was learnt: raise UpdateDiverged when each says so, else UpdateFailed."""
    if any(metrics["is_applied"] for metrics in history):
        return
    if all(metrics["is_finite"] == 0 for metrics in history):
        raise UpdateDiverged(f"the gradient was not finite in any step of {len(history)}")
    if all(metrics["is_finite"] == 0 or metrics["is_high_kl"] == 1 for metrics in history):
        raise UpdateDiverged(
            f"the policy was too far from its sampler, or the gradient not finite, in each step of {len(history)}"
        )
    num_low = sum(metrics["is_low_ess"] == 1 for metrics in history)
    raise UpdateFailed(f"no step was taken: {num_low} of {len(history)} had too few effective samples")


def diverged(history: Sequence[dict[str, float]]) -> str | None:
    """Why an update must not go on; None while it may. Steps with too few effective samples are no sign of it."""
    last = history[-MAX_FAILED_STEPS:]
    if len(last) < MAX_FAILED_STEPS:
        return None
    if all(metrics["is_finite"] == 0 for metrics in last):
        return f"the gradient was not finite in {MAX_FAILED_STEPS} steps in a row"
    if all(metrics["is_finite"] == 0 or metrics["is_high_kl"] == 1 for metrics in last):
        return (
            f"the policy was too far from its sampler, or the gradient not finite, in {MAX_FAILED_STEPS} steps in a row"
        )
    return None


def lr_scale(step: int, num_steps: int, config: UpdateConfig) -> float:
    """What the learning rate of a step, counted from 1, is multiplied by: a linear warm-up, then the schedule.

    Example: 2 steps of warm-up in 6, cosine -> .5, 1, 1, .854, .5, .146
    """
    if step <= config.warmup_steps:
        return step / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    done = (step - config.warmup_steps - 1) / max(1, num_steps - config.warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * done))


def finite(metrics: dict[str, float]) -> dict[str, float]:
    """Without the numbers that are none: unknown is not zero, and JSON has no word for it."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
