"""A reward model from preference pairs: a policy with a head that scores whole answers, by Bradley and Terry's loss.

The result is a folder any plain loader takes, with `reward.json` beside the weights: how to normalise its scores and
how far they can be trusted. Killed at any point, the same request goes on from its last snapshot, to the same bits.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor

from rl_online.algorithms.reward_model import bradley_terry
from rl_online.policy.load import choose_device
from rl_online.policy.scalar_head import load_scalar
from rl_online.rewards.batch import read_batch
from rl_online.rewards.durable import clear_drafts, new_folder
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.apply import plan_samples
from rl_online.training.dry_run import NUM_STEPS, DryRunRequest, DryRunResult
from rl_online.training.errors import ContradictoryUpdate, UpdateFailed
from rl_online.training.memory import peak_memory, reusing_memory
from rl_online.training.pair_report import PairReport, ScoredPair, report_pairs
from rl_online.training.pairs import Pair, PairSplit, find_pairs, split_pairs
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.scalar import ScalarTrainer, after_the_last, read_samples
from rl_online.training.scoring import Layout
from rl_online.training.snapshots import History, Keeper, KeepsNothing, Snapshots, clear_snapshots
from rl_online.training.state import state_folder
from rl_online.training.steps import Hooks, Progress, go_through, lr_scale, refuse_idle
from rl_online.training.update import UpdateRequest, identity_of
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import Manifest, read_manifest, verify_folder, write_manifest

REWARD = "reward.json"
TOKENIZER = "tokenizer.json"

AnswerScorer = Callable[[Sequence[TrainingSample]], list[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardModelResult:
    """A finished reward model."""

    tree_digest: str
    folder: Path
    num_bytes: int  # of the folder's files
    mean: float  # of its scores on the answers it learnt from; scores are used as (score - mean) / std
    std: float
    report: dict[str, Any]  # `PairReport` on the pairs set aside, and num_trained, num_heldout, part
    train_s: float  # 0 where a killed run had left the folder whole


def run_reward_model(
    request: UpdateRequest,
    *,
    on_progress: Callable[[Progress], None],
    is_cancelled: Callable[[], bool],
    crash: Callable[[str], None],
) -> RewardModelResult:
    """Train and save; or find that this was done already. `request.inputs["part"]` is all, proxy or gold (see `pairs`).

    Raises UpdateFailed, UpdateCancelled, CorruptBatch, CorruptCheckpoint. None of them leaves a folder.
    """
    hooks = Hooks(on_progress=on_progress, is_cancelled=is_cancelled, crash=crash)
    started = time.monotonic()
    parent = verify_folder(request.parent_folder)
    is_done = request.out_folder.exists()
    if not is_done:
        with reusing_memory():
            _train(request, parent, hooks)
    manifest = verify_folder(request.out_folder)
    facts = read_facts(request.out_folder)
    if facts["made_by"] != identity_of(request, parent):
        raise CorruptCheckpoint(f"{request.out_folder.name} was made by another update")
    clear_snapshots(state_folder(request.out_folder))
    return RewardModelResult(
        tree_digest=manifest.tree_digest,
        folder=request.out_folder,
        num_bytes=sum(row.size for row in manifest.files.values()),
        mean=facts["mean"],
        std=facts["std"],
        report=facts["report"],
        train_s=0.0 if is_done else time.monotonic() - started,
    )


def run_dry_pairs(request: DryRunRequest, *, is_cancelled: Callable[[], bool]) -> DryRunResult:
    """A few pairs for a look at the numbers; all are learnt from and nothing is written. Raises as `run_dry`."""
    device = choose_device(request.device)
    pairs = find_pairs(request.batch, request.config)
    config = replace(request.config, minibatch_size=max(1, len(pairs) // NUM_STEPS))
    seen: list[Progress] = []
    hooks = Hooks(on_progress=seen.append, is_cancelled=is_cancelled, crash=lambda name: None)
    started = time.monotonic()
    with reusing_memory(), peak_memory(device) as peak_bytes:
        verify_folder(request.parent_folder)
        trainer = ScalarTrainer(request.parent_folder, config=config, device=request.device, reads=after_the_last)
        loaded = time.monotonic()
        split = PairSplit(trained=pairs, heldout=[])
        learn_preferences(trainer, split, config, seed=request.seed, hooks=hooks, keeper=KeepsNothing())
        seconds = time.monotonic() - loaded
        peak = peak_bytes()
    return DryRunResult(
        steps=[progress.metrics for progress in seen if progress.metrics],
        load_s=loaded - started,
        seconds=seconds,
        tokens_per_s=seen[-1].tokens_per_s,
        peak_bytes=peak,
        device=str(device),
    )


def load_scorer(folder: Path, policy: Path, config: UpdateConfig, *, device: str) -> AnswerScorer:
    """Normalised scores of answers under the reward model in `folder`, which is in memory only during each call.

    Raises CorruptCheckpoint, or ContradictoryUpdate where its tokens are not those of the checkpoint in `policy`.
    """
    manifest = verify_folder(folder)
    if manifest.files.get(TOKENIZER) != read_manifest(policy).files.get(TOKENIZER):
        raise ContradictoryUpdate(
            f"reward model {folder.name} has another tokenizer than the policy; train one from this policy's line"
        )
    facts = read_facts(folder)
    layout = Layout(is_split=True, is_packed=False, max_tokens=config.micro_batch_tokens)

    def score(samples: Sequence[TrainingSample]) -> list[float]:
        model = load_scalar(folder, device=choose_device(device))
        found = read_samples(model, samples, after_the_last, layout)
        return [(value - facts["mean"]) / facts["std"] for (value,) in found]

    return score


def read_facts(folder: Path) -> dict[str, Any]:
    """`reward.json` of a reward model: mean, std, report, made_by. Raises CorruptCheckpoint where it has none."""
    try:
        facts: dict[str, Any] = json.loads((folder / REWARD).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CorruptCheckpoint(f"{folder.name} is no reward model: {error}") from error
    return facts


def learn_preferences(
    trainer: ScalarTrainer, split: PairSplit, config: UpdateConfig, *, seed: int, hooks: Hooks, keeper: Keeper
) -> History:
    """Go over the pairs to learn from, `minibatch_size` of them in a step, and measure a few others after each."""
    samples = as_samples(split.trained)
    watched = split.heldout[: config.heldout_samples]
    plan = plan_samples(samples, config, seed)

    def take(step: int, history: History) -> tuple[dict[str, float], int]:
        taken = [samples[index] for index in plan[step - 1]]
        scale = lr_scale(step, len(plan), config)
        metrics = take_pairs(trainer, taken, split.trained, config, hooks, lr_scale=scale)
        return metrics | measure_pairs(trainer, watched, config), sum(map(len, taken))

    return go_through(len(plan), take, hooks=hooks, keeper=keeper)


def take_pairs(
    trainer: ScalarTrainer,
    samples: Sequence[TrainingSample],
    pairs: Sequence[Pair],
    config: UpdateConfig,
    hooks: Hooks,
    *,
    lr_scale: float,
) -> dict[str, float]:
    """One optimizer step on both answers of some `pairs`."""
    gaps: list[float] = []

    def loss(value_K: Tensor, group: list[int]) -> Tensor:
        members = [samples[index] for index in group]
        ours = [pairs[one.pair] for one in members if one.is_chosen and one.pair is not None]
        is_chosen = torch.tensor([one.is_chosen for one in members], device=value_K.device)
        gaps.extend((value_K[is_chosen] - value_K[~is_chosen]).tolist())
        return _bradley_terry(value_K[is_chosen], value_K[~is_chosen], ours, config, denominator=len(samples) / 2)

    total = trainer.forward_backward(samples, loss)
    hooks.crash("update.after_backward")
    report = trainer.optim_step(lr_scale=lr_scale)
    hooks.crash("update.after_optimizer")
    return {
        "loss": total,
        "accuracy": fmean(gap > 0 for gap in gaps),
        "score_gap": fmean(gaps),
        "grad_norm": report.grad_norm,
        "learning_rate": config.learning_rate * lr_scale,
        "is_applied": float(report.is_applied),
        "is_finite": float(report.is_applied),
        "is_low_ess": 0.0,
        "is_high_kl": 0.0,
    }


def measure_pairs(trainer: ScalarTrainer, pairs: Sequence[Pair], config: UpdateConfig) -> dict[str, float]:
    """Loss and accuracy on pairs that are not learnt from; nothing without any."""
    if not pairs:
        return {}
    scored = score_pairs(trainer, pairs)
    chosen_P, rejected_P = (torch.tensor([getattr(one, name) for one in scored]) for name in ("chosen", "rejected"))
    return {
        "heldout_loss": float(_bradley_terry(chosen_P, rejected_P, pairs, config, denominator=len(pairs))),
        "heldout_accuracy": fmean(one.is_right for one in scored),
    }


def score_pairs(trainer: ScalarTrainer, pairs: Sequence[Pair]) -> list[ScoredPair]:
    """In their order."""
    scores = [value for (value,) in trainer.values(as_samples(pairs))]
    return [
        ScoredPair(
            chosen=chosen,
            rejected=rejected,
            chosen_length=len(pair.chosen) - pair.prompt_length,
            rejected_length=len(pair.rejected) - pair.prompt_length,
            person=pair.person,
        )
        for pair, chosen, rejected in zip(pairs, scores[::2], scores[1::2], strict=True)
    ]


def as_samples(pairs: Sequence[Pair]) -> list[TrainingSample]:
    """Both answers of each pair, the chosen one first; `pair` is the place in `pairs`."""
    return [
        TrainingSample(
            token_ids=ids,
            positions=[len(ids) - 1],
            weights={Stream.PREF: pair.weight},
            reward=0.0,
            pair=number,
            is_chosen=is_chosen,
            index=pair.place,
        )
        for number, pair in enumerate(pairs)
        for ids, is_chosen in ((pair.chosen, True), (pair.rejected, False))
    ]


def _bradley_terry(
    chosen_P: Tensor, rejected_P: Tensor, pairs: Sequence[Pair], config: UpdateConfig, *, denominator: float
) -> Tensor:
    return bradley_terry(
        chosen_P,
        rejected_P,
        torch.tensor([one.weight for one in pairs], device=chosen_P.device),
        denominator=denominator,
        margin_P=torch.tensor([one.margin for one in pairs], device=chosen_P.device),
        centering=config.score_centering,
    )


def _train(request: UpdateRequest, parent: Manifest, hooks: Hooks) -> None:
    batch, config = read_batch(request.batch_folder), request.config
    part = request.inputs.get("part", "all")
    split = split_pairs(batch, config, part=part)
    trainer = ScalarTrainer(request.parent_folder, config=config, device=request.device, reads=after_the_last)
    hooks.crash("update.before_train")
    made_by = identity_of(request, parent)
    state = state_folder(request.out_folder)
    keeper = Snapshots(state, trainer, config, parent_digest=parent.tree_digest, identity=made_by, crash=hooks.crash)
    try:
        history = learn_preferences(trainer, split, config, seed=request.seed, hooks=hooks, keeper=keeper)
        refuse_idle(history)
        scores = [value for (value,) in trainer.values(as_samples(split.trained))]
        if not (std := pstdev(scores)):
            raise UpdateFailed("every answer has the same score: nothing was learnt; raise learning_rate or epochs")
    except UpdateFailed:
        clear_snapshots(state)
        raise
    report = report_pairs(score_pairs(trainer, split.heldout))
    _save(
        request,
        parent,
        trainer,
        batch.digest,
        {"mean": fmean(scores), "std": std, "report": _told(report, split, part), "made_by": made_by},
        hooks,
    )


def _told(report: PairReport, split: PairSplit, part: str) -> dict[str, Any]:
    return asdict(report) | {"num_trained": len(split.trained), "num_heldout": len(split.heldout), "part": part}


def _save(
    request: UpdateRequest,
    parent: Manifest,
    trainer: ScalarTrainer,
    batch_digest: str,
    facts: dict[str, Any],
    hooks: Hooks,
) -> None:
    clear_drafts(request.out_folder)
    with new_folder(request.out_folder) as draft:
        trainer.save_weights(draft)
        (draft / REWARD).write_text(json.dumps(facts, indent=1, sort_keys=True), "utf-8")
        hooks.crash("update.mid_save")
        write_manifest(
            draft,
            policy=request.policy,
            version=request.version,
            parent=request.parent_version,
            parent_tree_digest=parent.tree_digest,
            optimizer_step=trainer.optimizer.step_count,
            batches=[batch_digest],
            config_digest=request.config.digest,
            code_version=request.code_version,
        )
        hooks.crash("update.before_rename")
    hooks.crash("update.after_rename")
