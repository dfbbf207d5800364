"""One pass of learning over a batch: which samples, in what order, how many steps, and what each step showed.

Drives any Trainer and knows no files. The same arguments give the same steps.
"""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

import torch

from rl_online.algorithms.diagnostics import measure_drift
from rl_online.algorithms.kto import mismatched, reference_point
from rl_online.rewards.batch import Batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.credit import assign_credit, with_opinions
from rl_online.training.errors import UpdateCancelled, UpdateDiverged, UpdateFailed
from rl_online.training.microbatch import units
from rl_online.training.objective import Objective, behaviour_of
from rl_online.training.refusals import refuse_contradictions, refuse_teacher
from rl_online.training.reported import facts_of, report_samples
from rl_online.training.samples import Selection, Stream, TrainingSample, select_samples
from rl_online.training.scoring import Scorer
from rl_online.training.snapshots import History, Keeper, KeepsNothing
from rl_online.training.steps import Hooks, Progress, go_through, lr_scale
from rl_online.training.teaching import with_teaching
from rl_online.training.trainer import Trainer

__all__ = ["Applied", "Hooks", "Progress", "UpdateCancelled", "UpdateDiverged", "UpdateFailed", "apply_update"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """What an update did to the weights."""

    metrics: dict[str, float]  # means over applied steps, and counts
    order: list[list[int]]  # of each step: the places in the batch of the samples it took
    history: list[dict[str, float]]  # the numbers of each step


def select_credited(
    batch: Batch, config: UpdateConfig, lineage: Sequence[int], *, has_teacher: bool = False
) -> Selection:
    """The samples of an update with their credit, before any weights are looked at. `has_teacher`: a network in a
    folder is there to be asked.

    Raises ContradictoryUpdate for a batch that the config does not fit, UpdateFailed where no sample may be trained on.
    """
    selection = with_teaching(select_samples(batch, config, lineage), batch, config, has_teacher=has_teacher)
    refuse_contradictions(batch, selection.samples, config)
    refuse_teacher(selection.samples, config, has_teacher=has_teacher)
    credited = assign_credit(selection.samples, config)
    dropped = selection.dropped | ({"dead_group": credited.num_dead} if credited.num_dead else {})
    if all(one.is_heldout for one in credited.samples):
        raise UpdateFailed(f"no sample of the batch can be trained on: {dropped}")
    samples = [replace(one, facts=facts_of(batch.samples[one.index])) for one in credited.samples]
    return Selection(samples=samples, dropped=dropped)


def apply_update(
    trainer: Trainer,
    selection: Selection,
    config: UpdateConfig,
    *,
    seed: int,
    base: Scorer | None,
    hooks: Hooks,
    keeper: Keeper | None = None,
    teacher: Scorer | None = None,
) -> Applied:
    """Train on `selection`, from where `keeper` finds this update was left. `base` scores samples under the frozen
    base, the reference of KL and KTO; None takes the weights as they are at the start. `teacher` does under a teacher
    whose opinion of each sampled token is asked for; None: the batch holds it.

    Raises UpdateDiverged when three steps in a row could not be taken; UpdateCancelled when asked to stop.
    """
    trained, set_aside = split_heldout(selection.samples)
    samples, partners = with_references(trained, config, base or trainer.logprobs, proximal=trainer.logprobs)
    heldout, _ = with_references(set_aside, config, base or trainer.logprobs, proximal=trainer.logprobs)
    samples, heldout = (with_opinions(some, config, teacher) for some in (samples, heldout))
    steps = Planned(samples=samples, partners=partners, plan=plan_samples(samples, config, seed))
    history = run_steps(trainer, steps, heldout, config, hooks=hooks, keeper=keeper or KeepsNothing())
    return Applied(
        metrics=summarise(history, Selection(samples=samples, dropped=selection.dropped), len(heldout)),
        order=[[samples[i].index for i in indices] for indices in steps.plan],
        history=history,
    )


class Steps(Protocol):
    """What each step of an update trains on, settled before the first: asked again, it says the same."""

    def __len__(self) -> int:
        """How many."""

    def take(self, step: int) -> tuple[list[TrainingSample], list[TrainingSample | None]]:
        """The samples of a step, counted from 1, and the mismatched pair of each that goes to KTO."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """Steps over samples in memory."""

    samples: list[TrainingSample]
    partners: list[TrainingSample | None]  # one for each sample
    plan: list[list[int]]  # of each step: indices into both

    def __len__(self) -> int:
        return len(self.plan)

    def take(self, step: int) -> tuple[list[TrainingSample], list[TrainingSample | None]]:
        indices = self.plan[step - 1]
        return [self.samples[i] for i in indices], [self.partners[i] for i in indices]


def run_steps(
    trainer: Trainer,
    steps: Steps,
    heldout: Sequence[TrainingSample],
    config: UpdateConfig,
    *,
    hooks: Hooks,
    keeper: Keeper,
) -> list[dict[str, float]]:
    """The numbers of every step, from where `keeper` finds this update was left. Raises as `apply_update` does."""
    num_steps = len(steps)

    def take(step: int, history: History) -> tuple[dict[str, float], int]:
        samples, partners = steps.take(step)
        metrics = take_step(trainer, samples, partners, config, hooks, lr_scale=lr_scale(step, num_steps, config))
        if step % config.heldout_every == 0 or step == num_steps:
            metrics |= measure_heldout(trainer, heldout, config, kto_reference=metrics.get("kto_reference", 0.0))
        return metrics, sum(map(len, samples))

    return go_through(num_steps, take, hooks=hooks, keeper=keeper)


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
    divergence_K = _in_a_row(trainer.divergences(samples)) if objective.num_taught else None
    terms = objective.terms(_in_a_row(logprobs), samples, divergence_K)
    losses = {name: float(term) for name, term in terms.items()}
    drift = _drift(samples, logprobs, objective)
    return {
        "heldout_loss": sum(losses.values()),
        **_by_slice("heldout_loss_ce", samples, logprobs),
        **{f"heldout_{name}": drift[name] for name in ("kl", "ratio_mean") if name in drift},
        **{f"heldout_{name}": value for name, value in _to_references(samples, logprobs, losses, config).items()},
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


def plan_samples(samples: Sequence[TrainingSample], config: UpdateConfig, seed: int) -> list[list[int]]:
    """`plan_steps` over samples, with the two answers of a pair in the same step."""
    together = units(samples)
    return [[index for unit in step for index in together[unit]] for step in plan_steps(len(together), config, seed)]


def with_references(
    samples: Sequence[TrainingSample], config: UpdateConfig, score: Scorer, *, proximal: Scorer | None = None
) -> tuple[list[TrainingSample], list[TrainingSample | None]]:
    """Samples with the reference's log-probabilities filled in, and each KTO sample's mismatched pair.

    `proximal` scores under the weights before the first step, for losses whose ratio is to them.
    """
    needs_base = [i for i, one in enumerate(samples) if Stream.REF_KL in one.weights]
    in_pairs = [i for i, one in enumerate(samples) if Stream.PREF in one.weights and one.pair is not None]
    in_kto = [i for i, one in enumerate(samples) if Stream.PREF in one.weights and one.pair is None]
    partners = {
        i: mismatch(samples[i], samples[in_kto[partner]])
        for i, partner in zip(in_kto, mismatched(len(in_kto)), strict=False)
    }
    asked = [samples[i] for i in needs_base + in_kto + in_pairs] + list(partners.values())
    scored = iter(score(asked) if asked else [])
    filled = list(samples)
    for i in needs_base:
        filled[i] = replace(samples[i], base=next(scored))
    for i in in_kto + in_pairs:
        filled[i] = replace(samples[i], reference=sum(next(scored)))
    references = {i: replace(pair, reference=sum(next(scored))) for i, pair in partners.items()}
    if config.needs_proximal and proximal is not None:
        anchored = [i for i, one in enumerate(samples) if one.behaviour is not None]
        for i, logprobs in zip(anchored, proximal([samples[i] for i in anchored]) if anchored else [], strict=True):
            filled[i] = replace(filled[i], proximal=logprobs)
    return filled, [references.get(i) for i in range(len(samples))]


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
        f"num_samples_{stream}": float(sum(stream in sample.weights for sample in selection.samples))
        for stream in Stream
    }
    return {
        **means,
        **streams,
        "num_taught": float(sum(one.teaching is not None or one.teacher is not None for one in selection.samples)),
        **{f"dropped_{reason}": float(count) for reason, count in selection.dropped.items()},
        "num_steps": float(len(history)),
        "skipped_not_finite": float(sum(not metrics["is_finite"] for metrics in history)),
        "skipped_low_ess": float(sum(metrics.get("is_low_ess", 0) for metrics in history)),
        "skipped_high_kl": float(sum(metrics.get("is_high_kl", 0) for metrics in history)),
        "num_tokens": float(sum(map(len, selection.samples))),
        "num_heldout": float(num_heldout),
        "num_trained_tokens": float(sum(len(sample.positions) for sample in selection.samples)),
    }


def take_step(
    trainer: Trainer,
    samples: Sequence[TrainingSample],
    partners: Sequence[TrainingSample | None],
    config: UpdateConfig,
    hooks: Hooks,
    *,
    lr_scale: float,
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
        **report_samples(samples, seen.logprobs),
        **_drift(samples, seen.logprobs, objective),
        **_to_references(samples, seen.logprobs, seen.losses, config),
        **_by_slice("loss_ce", samples, seen.logprobs),
        **({"kto_reference": objective.kto_reference_point} if pairs else {}),
        "learning_rate": config.learning_rate * lr_scale,
        "num_passes": float(seen.num_passes),
        "padding_share": seen.padding_share,
        "padding_share_unsorted": seen.padding_share_unsorted,
    }
    is_low_ess = metrics.get("ess_share", 1.0) < config.min_ess
    # With few effective samples a handful of tokens decides the KL, which then says little.
    is_high_kl = not is_low_ess and config.max_kl > 0 and metrics.get("kl", 0.0) > config.max_kl
    report = trainer.optim_step(discard=is_low_ess or is_high_kl, lr_scale=lr_scale)
    hooks.crash("update.after_optimizer")
    return metrics | {
        "grad_norm": report.grad_norm,
        "is_applied": float(report.is_applied),
        "is_finite": float(report.is_applied or (math.isfinite(report.grad_norm) and (is_low_ess or is_high_kl))),
        "is_low_ess": float(is_low_ess),
        "is_high_kl": float(is_high_kl),
    }


def _rewards(samples: Sequence[TrainingSample]) -> dict[str, float]:
    rewarded = [
        one for one in samples if Stream.CE not in one.weights and (one.teaching is None or Stream.RL in one.weights)
    ]
    advantages = [
        value
        for sample in samples
        if Stream.RL in sample.weights
        for value in (sample.advantage if isinstance(sample.advantage, list) else [sample.advantage])
    ]
    found = {"reward": fmean(sample.reward for sample in rewarded)} if rewarded else {}
    return found | ({"advantage": fmean(advantages)} if advantages else {})


def _to_references(
    samples: Sequence[TrainingSample],
    logprobs: Sequence[Sequence[float]],
    losses: Mapping[str, float],
    config: UpdateConfig,
) -> dict[str, float]:
    """How far the policy is from base and teacher, in nats per token: their terms without the coefficients.

    A teacher whose opinion is an advantage has no term; of it the mean of l - log p_teacher over what was sampled.
    """
    found = {"kl_base": losses["ref_kl"] / config.base_kl} if "ref_kl" in losses else {}
    if "distill" in losses:
        return found | {"kl_teacher": losses["distill"] / config.distill_weight}
    gaps = [
        logp - said
        for sample, row in zip(samples, logprobs, strict=True)
        if sample.teacher is not None
        for logp, said in zip(row, sample.teacher, strict=True)
    ]
    return found | ({"kl_teacher": fmean(gaps)} if gaps else {})


def _by_slice(name: str, samples: Sequence[TrainingSample], logprobs: Sequence[Sequence[float]]) -> dict[str, float]:
    """`<name>.<slice>`: cross-entropy per trained token of each slice, by its own count; without the weights.

    Example: slice "python", log-probabilities [-1, -2] and [-3] -> loss_ce.python 2.0
    """
    found: dict[str, list[float]] = {}
    for sample, row in zip(samples, logprobs, strict=True):
        if sample.slice:
            found.setdefault(sample.slice, []).extend(row)
    return {f"{name}.{slice_}": -fmean(values) for slice_, values in sorted(found.items()) if values}


def _in_a_row(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    return torch.tensor([value for row in rows for value in row])


def _drift(
    samples: Sequence[TrainingSample], logprobs: Sequence[Sequence[float]], objective: Objective
) -> dict[str, float]:
    """Of samples in the ratio loss. Where there are none, of own answers that only a teacher is learnt on: no ratio
    weighs these, so nothing is clipped and no weight is uneven.
    """
    rows = list(zip(samples, logprobs, strict=True))
    in_rl = [(sample, logp) for sample, logp in rows if Stream.RL in sample.weights]
    measured = in_rl or [(sample, logp) for sample, logp in rows if sample.behaviour is not None]
    logp_K = torch.tensor([value for _, logp in measured for value in logp])
    members = [sample for sample, _ in measured]
    keep_K = objective.pushes(logp_K, members) if in_rl else torch.ones_like(logp_K)
    drift = measure_drift(logp_K, behaviour_of(members), keep_K)
    if drift is None:
        return {}
    return {
        "kl": drift.kl,
        "ratio_mean": drift.ratio_mean,
        "ratio_max": drift.ratio_max,
        **({"clipped_share": drift.clipped_share, "ess_share": drift.ess_share} if in_rl else {}),
        "logp_gap": drift.logp_gap,
    }
