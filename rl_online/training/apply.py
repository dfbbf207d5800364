"""One pass of learning over a batch: which samples, in what order, how many steps, and what each step showed.

Drives any Trainer and knows no files. The same arguments give the same steps.
"""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from rl_online.algorithms.diagnostics import measure_drift
from rl_online.algorithms.kto import mismatched, reference_point
from rl_online.rewards.batch import Batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.objective import Objective, behaviour_of
from rl_online.training.samples import Selection, Stream, TrainingSample, select_samples
from rl_online.training.scoring import Scorer
from rl_online.training.trainer import Trainer

MAX_FAILED_STEPS = 3  # in a row without a finite gradient: the update is diverging, more steps will not help


class UpdateFailed(RuntimeError):
    """Nothing usable can come of this update; the message says why."""


class UpdateCancelled(RuntimeError):
    """Somebody asked to stop; nothing was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where an update stands after a step."""

    step: int  # steps done, 0 before the first
    num_steps: int
    metrics: dict[str, float]  # of this step: loss, loss_<term>, reward, kl, ratio_mean, ..., heldout_loss, is_applied
    tokens_per_s: float  # prompt and completion tokens trained on, by the wall
    seconds_left: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """What an update did to the weights."""

    metrics: dict[str, float]  # means over applied steps, and counts


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """What the caller wants to hear and to say while an update runs."""

    on_progress: Callable[[Progress], None]
    is_cancelled: Callable[[], bool]
    crash: Callable[[str], None]  # called with the name of each point a test may kill the process at


def apply_update(
    trainer: Trainer,
    batch: Batch,
    config: UpdateConfig,
    *,
    lineage: Sequence[int],
    seed: int,
    base: Scorer | None,
    hooks: Hooks,
) -> Applied:
    """Train on `batch`. `base` scores samples under the frozen base, the reference of KL and KTO; None takes the
    weights as they are at the start.

    Raises UpdateFailed when no sample may be trained on or three steps in a row have no finite gradient;
    UpdateCancelled when asked to stop.
    """
    selection = select_samples(batch, config, lineage)
    trained, set_aside = split_heldout(selection.samples)
    if not trained:
        raise UpdateFailed(f"no sample of the batch can be trained on: {selection.dropped}")
    samples, partners = with_references(trained, config, base or trainer.logprobs)
    heldout, _ = with_references(set_aside, config, base or trainer.logprobs)
    plan = plan_steps(len(samples), config, seed)
    started = time.monotonic()
    history: list[dict[str, float]] = []
    num_tokens = num_failed = 0
    hooks.on_progress(Progress(step=0, num_steps=len(plan), metrics={}, tokens_per_s=0.0, seconds_left=0.0))
    for step, indices in enumerate(plan, 1):
        if hooks.is_cancelled():
            raise UpdateCancelled(f"cancelled before step {step} of {len(plan)}")
        metrics = _take_step(trainer, [samples[i] for i in indices], [partners[i] for i in indices], config, hooks)
        metrics |= measure_heldout(trainer, heldout, config, kto_reference=metrics.get("kto_reference", 0.0))
        history.append(metrics)
        num_failed = num_failed + 1 if metrics["is_finite"] == 0 else 0
        if num_failed == MAX_FAILED_STEPS:
            raise UpdateFailed(f"the gradient was not finite in {num_failed} steps in a row, up to step {step}")
        num_tokens += sum(len(samples[i].token_ids) for i in indices)
        seconds = time.monotonic() - started
        hooks.on_progress(
            Progress(
                step=step,
                num_steps=len(plan),
                metrics=metrics,
                tokens_per_s=num_tokens / seconds,
                seconds_left=seconds / step * (len(plan) - step),
            )
        )
    return Applied(metrics=summarise(history, Selection(samples=trained, dropped=selection.dropped), len(heldout)))


def split_heldout(samples: Sequence[TrainingSample]) -> tuple[list[TrainingSample], list[TrainingSample]]:
    """(to train on, to measure only), both in their order, as the batch marks them."""
    return [one for one in samples if not one.is_heldout], [one for one in samples if one.is_heldout]


def measure_heldout(
    trainer: Trainer, samples: Sequence[TrainingSample], config: UpdateConfig, *, kto_reference: float
) -> dict[str, float]:
    """Loss and drift on samples that are never trained on, under the weights as they are now; nothing without any."""
    if not samples:
        return {}
    objective = Objective.of(samples, config, kto_reference_point=kto_reference)
    logprobs = trainer.logprobs(samples)
    terms = objective.terms(torch.tensor([value for row in logprobs for value in row]), samples)
    drift = _drift(samples, logprobs, objective)
    return {
        "heldout_loss": sum(float(term) for term in terms.values()),
        **{f"heldout_{name}": drift[name] for name in ("kl", "ratio_mean") if name in drift},
    }


def plan_steps(num_samples: int, config: UpdateConfig, seed: int) -> list[list[int]]:
    """Indices of each minibatch, shuffled anew in every epoch; sizes differ by at most one.

    Example: 390 samples in minibatches of 64 make 6 steps of 65.
    """
    shuffler = random.Random(seed)
    num_steps = max(1, round(num_samples / config.minibatch_size))
    plan: list[list[int]] = []
    for _ in range(config.epochs):
        order = shuffler.sample(range(num_samples), num_samples)
        cuts = [round(num_samples * step / num_steps) for step in range(num_steps + 1)]
        plan += [order[start:end] for start, end in itertools.pairwise(cuts)]
    return plan


def with_references(
    samples: Sequence[TrainingSample], config: UpdateConfig, score: Scorer
) -> tuple[list[TrainingSample], list[TrainingSample | None]]:
    """Samples with the reference's log-probabilities filled in, and each KTO sample's mismatched pair."""
    needs_base = [i for i, one in enumerate(samples) if one.stream is Stream.RL and config.base_kl]
    in_kto = [i for i, one in enumerate(samples) if one.stream is Stream.KTO]
    pairs = [
        mismatch(samples[i], samples[in_kto[partner]])
        for i, partner in zip(in_kto, mismatched(len(in_kto)), strict=False)
    ]
    scored = score([samples[i] for i in needs_base + in_kto] + pairs) if needs_base or in_kto else []
    filled = list(samples)
    partners: list[TrainingSample | None] = [None] * len(samples)
    for i, logprobs in zip(needs_base, scored, strict=False):
        filled[i] = replace(samples[i], base=logprobs)
    for i, logprobs in zip(in_kto, scored[len(needs_base) :], strict=False):
        filled[i] = replace(samples[i], reference=sum(logprobs))
    for i, pair, logprobs in zip(in_kto, pairs, scored[len(needs_base) + len(in_kto) :], strict=False):
        partners[i] = replace(pair, reference=sum(logprobs))
    return filled, partners


def mismatch(one: TrainingSample, other: TrainingSample) -> TrainingSample:
    """The first's prompt with the second's completion: what the policy says when it does not listen."""
    start, other_start = one.positions[0], other.positions[0]
    return replace(
        one,
        token_ids=one.token_ids[:start] + other.token_ids[other_start:],
        positions=[start + place - other_start for place in other.positions],
    )


def summarise(history: Sequence[dict[str, float]], selection: Selection, num_heldout: int = 0) -> dict[str, float]:
    """Means of each number over the steps that were applied, and counts of what happened to steps and samples.

    `selection` holds what was trained on.
    """
    applied = [metrics for metrics in history if metrics["is_applied"]]
    names = dict.fromkeys(name for metrics in applied for name in metrics if not name.startswith("is_"))
    means = {name: fmean(metrics[name] for metrics in applied if name in metrics) for name in names}
    streams = {
        f"num_samples_{stream}": float(sum(sample.stream is stream for sample in selection.samples))
        for stream in Stream
    }
    return {
        **means,
        **streams,
        **{f"dropped_{reason}": float(count) for reason, count in selection.dropped.items()},
        "num_steps": float(len(history)),
        "skipped_not_finite": float(sum(not metrics["is_finite"] for metrics in history)),
        "skipped_low_ess": float(sum(metrics.get("is_low_ess", 0) for metrics in history)),
        "num_tokens": float(sum(len(sample.token_ids) for sample in selection.samples)),
        "num_heldout": float(num_heldout),
        "num_trained_tokens": float(sum(len(sample.positions) for sample in selection.samples)),
    }


def _take_step(
    trainer: Trainer,
    samples: Sequence[TrainingSample],
    partners: Sequence[TrainingSample | None],
    config: UpdateConfig,
    hooks: Hooks,
) -> dict[str, float]:
    pairs = [pair for pair in partners if pair is not None]
    gains = [sum(logp) - pair.reference for pair, logp in zip(pairs, trainer.logprobs(pairs), strict=True)]
    objective = Objective.of(samples, config, kto_reference_point=reference_point(gains))
    seen = trainer.forward_backward(samples, objective)
    hooks.crash("update.after_backward")
    metrics = {
        "loss": sum(seen.losses.values()),
        **{f"loss_{name}": value for name, value in seen.losses.items()},
        **_rewards(samples),
        **_drift(samples, seen.logprobs, objective),
        **({"kto_reference": objective.kto_reference_point} if pairs else {}),
    }
    is_low_ess = metrics.get("ess_share", 1.0) < config.min_ess
    report = trainer.optim_step(discard=is_low_ess)
    hooks.crash("update.after_optimizer")
    return metrics | {
        "grad_norm": report.grad_norm,
        "is_applied": float(report.is_applied),
        "is_finite": float(report.is_applied or is_low_ess),
        "is_low_ess": float(is_low_ess),
    }


def _rewards(samples: Sequence[TrainingSample]) -> dict[str, float]:
    rewarded = [sample for sample in samples if sample.stream is not Stream.CE]
    advantages = [sample.advantage for sample in samples if sample.stream is Stream.RL]
    found = {"reward": fmean(sample.reward for sample in rewarded)} if rewarded else {}
    return found | ({"advantage": fmean(advantages)} if advantages else {})


def _drift(
    samples: Sequence[TrainingSample], logprobs: Sequence[Sequence[float]], objective: Objective
) -> dict[str, float]:
    in_rl = [(sample, logp) for sample, logp in zip(samples, logprobs, strict=True) if sample.stream is Stream.RL]
    logp_K = torch.tensor([value for _, logp in in_rl for value in logp])
    behaviour_K = behaviour_of([sample for sample, _ in in_rl])
    advantage_K = torch.tensor([sample.advantage for sample, logp in in_rl for _ in logp])
    drift = measure_drift(logp_K, behaviour_K, objective.keep(logp_K, behaviour_K, advantage_K))
    if drift is None:
        return {}
    return {
        "kl": drift.kl,
        "ratio_mean": drift.ratio_mean,
        "ratio_max": drift.ratio_max,
        "clipped_share": drift.clipped_share,
        "ess_share": drift.ess_share,
        "logp_gap": drift.logp_gap,
    }
