"""PPO against a reward model, watched by a scorer it is not trained against.

Each iteration the policy answers some of the batch's prompts, the reward model scores the answers, a value network says
what was to be expected of each token, and the trainer takes several minibatch steps on credit for each token. After it
other prompts are answered and scored by both: training stops once it only pleases its own judge, and the weights kept
are those of the iteration that the gold scorer liked best.

A snapshot is taken between iterations only. What an iteration answered is not in it: drawn again from the random state
that is, it comes out the same to the bit.
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from rl_online.algorithms.base_kl import kl_reward
from rl_online.algorithms.gae import gae
from rl_online.algorithms.reinforce_plus_plus import whiten
from rl_online.algorithms.value_loss import clipped_value_loss
from rl_online.rewards.batch import Batch, read_batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.apply import Applied, plan_steps, take_step
from rl_online.training.errors import ContradictoryUpdate, UpdateCancelled, UpdateFailed
from rl_online.training.local import LocalTrainer
from rl_online.training.overoptimisation import best_of, curve_of, should_stop
from rl_online.training.reward_model import AnswerScorer, load_scorer, read_facts
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.scalar import ScalarTrainer, before_each, refuse_for_scalar
from rl_online.training.scoring import Scorer, frozen_scorer
from rl_online.training.snapshots import History, Snapshots
from rl_online.training.state import state_folder
from rl_online.training.steps import Hooks, Progress, go_through, lr_scale, refuse_idle
from rl_online.training.trainer import Trainer
from rl_online.training.update import UpdateRequest, UpdateResult, identity_of, run_update
from rl_online.weights.manifest import Manifest

REWARD_MODEL = "reward_model"  # the folder trained against, in a request
GOLD = "gold"  # the folder that watches; optional
# Settings that PPO has no use for: the value each must have, and why.
UNUSED = (
    ("advantage", "baseline", "PPO's credit comes from its value network"),
    ("overlong_buffer", 0, "the reward model alone scores an answer"),
    ("distill_weight", 0.0, "PPO asks no teacher"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    token_ids: list[int]
    place: int  # in the batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """Of a batch, each once."""

    trained: list[Prompt]
    watched: list[Prompt]  # answered after each iteration and only measured


@dataclass(frozen=True, kw_only=True, slots=True)
class Judges:
    """Who scores an answer."""

    proxy: AnswerScorer  # trained against
    gold: AnswerScorer | None  # None: nobody watches, training goes to its last iteration
    base: Scorer  # log-probabilities under the frozen base


@dataclass(frozen=True, kw_only=True, slots=True)
class Credited:
    """An iteration's answers with their credit; every list runs along the samples."""

    samples: list[TrainingSample]  # with an advantage for each token, and `proximal` the policy's own before the steps
    values: list[list[float]]  # of each token, before the steps
    returns: list[list[float]]  # what the value network should have said


class Critic:
    """The value network: a trainer of its own, and the scale its numbers are read in."""

    def __init__(self, folder: Path, config: UpdateConfig, *, device: str, mean: float = 0.0, std: float = 1.0) -> None:
        """Of a policy's folder, or of a reward model's, whose `mean` and `std` make its scores rewards."""
        config = replace(config, learning_rate=config.value_learning_rate)
        self.trainer = ScalarTrainer(folder, config=config, device=device, reads=before_each)
        self.mean, self.std = mean, std

    def values(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Of the state each trained token was chosen in."""
        return [[(value - self.mean) / self.std for value in row] for row in self.trainer.values(samples)]

    def learn(self, credited: Credited, indices: Sequence[int], config: UpdateConfig, *, lr_scale: float) -> float:
        """One step on some samples; the loss before it."""
        samples = [credited.samples[index] for index in indices]
        num_tokens = sum(len(one.positions) for one in samples)

        def loss(value_K: Tensor, group: list[int]) -> Tensor:
            old_K, return_K = (
                torch.tensor([value for place in group for value in rows[indices[place]]], device=value_K.device)
                for rows in (credited.values, credited.returns)
            )
            return clipped_value_loss(
                (value_K - self.mean) / self.std,
                old_K,
                return_K,
                torch.ones_like(value_K),
                denominator=num_tokens,
                clip=config.value_clip,
            )

        total = self.trainer.forward_backward(samples, loss)
        self.trainer.optim_step(lr_scale=lr_scale)
        return total


class PpoState:
    """All that changes while PPO runs, and the best of it so far, which waits in `scratch`."""

    def __init__(self, trainer: Trainer, critic: Critic, scratch: Path) -> None:
        self._trainer = trainer
        self._critic = critic
        self._best = scratch / "best"

    def remember_best(self) -> None:
        shutil.rmtree(self._best, ignore_errors=True)
        self._best.mkdir()
        self._trainer.save_snapshot(self._best)

    def return_to_best(self) -> None:
        self._trainer.load_snapshot(self._best)

    def save_snapshot(self, folder: Path) -> None:
        self._trainer.save_snapshot(folder)
        (folder / "critic").mkdir()
        self._critic.trainer.save_snapshot(folder / "critic")
        if self._best.exists():
            shutil.copytree(self._best, folder / "best")

    def load_snapshot(self, folder: Path) -> None:
        self._trainer.load_snapshot(folder)
        self._critic.trainer.load_snapshot(folder / "critic")
        if (folder / "best").exists():
            shutil.copytree(folder / "best", self._best, dirs_exist_ok=True)


def run_ppo(
    request: UpdateRequest,
    *,
    on_progress: Callable[[Progress], None],
    is_cancelled: Callable[[], bool],
    crash: Callable[[str], None],
    proxy: AnswerScorer | None = None,
    gold: AnswerScorer | None = None,
) -> UpdateResult:
    """As `run_update`, with `request.folders` naming the reward model and, if there is one, the gold reward model.

    `proxy` and `gold` score instead of those folders. Raises what `run_update` does, and UpdateFailed where the gold
    scorer liked no iteration better than the weights it began with.
    """
    return run_update(
        request,
        on_progress=on_progress,
        is_cancelled=is_cancelled,
        crash=crash,
        learn=partial(_learn, proxy=proxy, gold=gold),
    )


def _learn(
    request: UpdateRequest,
    parent: Manifest,
    hooks: Hooks,
    *,
    proxy: AnswerScorer | None,
    gold: AnswerScorer | None,
) -> tuple[Trainer, Applied]:
    config, device = request.config, request.device
    refuse_for_ppo(request, has_proxy=proxy is not None)
    prompts = split_prompts(read_batch(request.batch_folder), config, seed=request.seed)

    def scorer(name: str) -> AnswerScorer:
        return load_scorer(request.folders[name], request.parent_folder, config, device=device)

    judges = Judges(
        proxy=proxy or scorer(REWARD_MODEL),
        gold=gold or (scorer(GOLD) if GOLD in request.folders else None),
        base=frozen_scorer(request.base_folder or request.parent_folder, config, device=device),
    )
    parent_state = state_folder(request.parent_folder)
    trainer = LocalTrainer(
        request.parent_folder,
        config=config,
        device=device,
        seed=request.seed,
        state=parent_state if parent_state.exists() else None,
    )
    critic = _open_critic(request)
    hooks.crash("update.before_train")
    state = state_folder(request.out_folder)
    state.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=state.parent, prefix=f".{state.name}.", suffix=".tmp") as scratch:
        whole = PpoState(trainer, critic, Path(scratch))
        keeper = Snapshots(
            state,
            whole,
            config,
            parent_digest=parent.tree_digest,
            identity=identity_of(request, parent),
            crash=hooks.crash,
        )
        loop = Loop(
            trainer, critic, prompts, judges, config, seed=request.seed, hooks=hooks, on_best=whole.remember_best
        )
        history = go_through(config.ppo_iterations, loop.take, hooks=hooks, keeper=keeper, is_over=loop.is_over)
        refuse_idle(history)
        best = best_of(curve_of(history))
        if not best.iteration:
            raise UpdateFailed(
                f"no iteration pleased the gold scorer more than the weights it began with ({best.gold:.3f}): "
                "lower learning_rate, raise ppo_kl, or gather more pairs for the reward model"
            )
        if best.iteration < len(history):
            whole.return_to_best()
    applied = Applied(
        metrics=summarise(history, best_iteration=best.iteration, num_planned=config.ppo_iterations),
        order=[[one.place for one in loop.chosen(step)] for step in range(1, len(history) + 1)],
        history=history,
    )
    return trainer, applied


def _open_critic(request: UpdateRequest) -> Critic:
    config, device = request.config, request.device
    if config.value_init == "fresh":
        return Critic(request.parent_folder, config, device=device)
    folder = request.folders[REWARD_MODEL]
    facts = read_facts(folder)
    return Critic(folder, config, device=device, mean=facts["mean"], std=facts["std"])


def refuse_for_ppo(request: UpdateRequest, *, has_proxy: bool) -> None:
    """Raise ContradictoryUpdate for what cannot be PPO against this reward model, before any weights are loaded."""
    config = request.config
    if (config.policy_loss, config.correction) != ("ppo_clip", "none"):
        raise ContradictoryUpdate(
            f"policy_loss is {config.policy_loss} with correction {config.correction}; PPO answers its own prompts and "
            "takes policy_loss ppo_clip with correction none"
        )
    if config.base_kl:
        raise ContradictoryUpdate(
            f"base_kl is {config.base_kl}, but PPO has the KL to the base in its reward: set ppo_kl, and base_kl to 0"
        )
    refuse_for_scalar(config)  # of the value network
    for name, right, why in UNUSED:
        if (value := getattr(config, name)) != right:
            raise ContradictoryUpdate(f"{name} is {value}, but {why}; set it to {right}")
    if REWARD_MODEL not in request.folders:
        if not has_proxy:
            raise ContradictoryUpdate("reward_model is missing; PPO needs the reward model it is trained against")
        if config.value_init == "reward_model":
            raise ContradictoryUpdate("value_init is reward_model, and there is none; choose fresh")
    elif GOLD in request.folders:
        parts = [read_facts(request.folders[name])["report"]["part"] for name in (REWARD_MODEL, GOLD)]
        if parts != ["proxy", "gold"]:
            raise ContradictoryUpdate(
                f"reward_model learnt from part {parts[0]} of the people and gold from part {parts[1]}; train one with "
                "part proxy and one with part gold, so that the gold scorer judges by people the other never saw"
            )


def split_prompts(batch: Batch, config: UpdateConfig, *, seed: int) -> Prompts:
    """Prompts the batch sets aside are watched, and by `seed` others up to `ppo_watched`, but at most half of all."""
    found: dict[tuple[int, ...], Prompt] = {}
    marked: set[tuple[int, ...]] = set()
    for place, sample in enumerate(batch.samples):
        if not sample.is_tombstone and sample.prompt_length:
            ids = tuple(sample.token_ids[: sample.prompt_length])
            found.setdefault(ids, Prompt(token_ids=list(ids), place=place))
            if sample.is_heldout:
                marked.add(ids)
    ordered = sorted(found, key=lambda ids: (ids not in marked, sha256(f"{seed}:{ids}".encode()).digest()))
    num_watched = max(len(marked), min(config.ppo_watched, len(found) // 2))
    if not num_watched or num_watched == len(found):
        raise ContradictoryUpdate(
            f"the batch has {len(found)} different prompts; PPO needs one to learn from and one to watch"
        )
    watched = set(ordered[:num_watched])
    return Prompts(
        trained=[one for ids, one in found.items() if ids not in watched],
        watched=[one for ids, one in found.items() if ids in watched],
    )


class Loop:
    """The iterations of PPO over a trainer, a critic and the judges."""

    def __init__(
        self,
        trainer: Trainer,
        critic: Critic,
        prompts: Prompts,
        judges: Judges,
        config: UpdateConfig,
        *,
        seed: int,
        hooks: Hooks,
        on_best: Callable[[], None],
    ) -> None:
        self._trainer = trainer
        self._critic = critic
        self._prompts = prompts
        self._judges = judges
        self._config = config
        self._seed = seed
        self._hooks = hooks
        self._on_best = on_best

    def take(self, iteration: int, history: History) -> tuple[dict[str, float], int]:
        """One iteration: its numbers, and the tokens it trained on."""
        started = {} if history else {f"start_{name}": value for name, value in self._watch().items()}
        answers = roll_out(self._trainer, self.chosen(iteration), self._config)
        self._hooks.crash("ppo.after_rollouts")
        credited = self._credit(answers)
        steps = self._steps(iteration, credited)
        self._hooks.crash("ppo.after_steps")
        metrics = mean_of_steps(steps) | about(credited.samples) | started | self._watch()
        if self._judges.gold and best_of(curve_of([*history, metrics])).iteration == iteration:
            self._on_best()
        return metrics, self._config.epochs * sum(map(len, answers))

    def is_over(self, history: History) -> bool:
        return should_stop(curve_of(history), margin=self._config.gold_margin)

    def chosen(self, iteration: int) -> list[Prompt]:
        """`ppo_prompts` of those trained on, another choice each iteration; all of them again where there are fewer."""
        trained = self._prompts.trained
        order = random.Random(f"{self._seed}:{iteration}").sample(trained, len(trained))
        return [order[number % len(order)] for number in range(self._config.ppo_prompts)]

    def _credit(self, answers: Sequence[TrainingSample]) -> Credited:
        return credit_tokens(
            answers,
            scores=self._judges.proxy(answers),
            logprobs=self._trainer.logprobs(answers),
            base=self._judges.base(answers),
            values=self._critic.values(answers),
            config=self._config,
        )

    def _steps(self, iteration: int, credited: Credited) -> list[dict[str, float]]:
        config, found = self._config, []
        plan = plan_steps(len(credited.samples), config, self._seed + iteration)
        for number, indices in enumerate(plan, 1):
            if self._hooks.is_cancelled():
                raise UpdateCancelled(f"cancelled in iteration {iteration}; the last snapshot is from before it")
            scale = lr_scale((iteration - 1) * len(plan) + number, config.ppo_iterations * len(plan), config)
            samples = [credited.samples[index] for index in indices]
            metrics = take_step(self._trainer, samples, [None] * len(samples), config, self._hooks, lr_scale=scale)
            value_loss = self._critic.learn(credited, indices, config, lr_scale=scale)
            found.append(metrics | {"loss_value": value_loss})
        return found

    def _watch(self) -> dict[str, float]:
        """Both judges' opinion of the policy as it is now, and how far that is from the base."""
        answers = roll_out(self._trainer, self._prompts.watched, self._config)
        ours, bases = self._trainer.logprobs(answers), self._judges.base(answers)
        found = {
            "proxy": fmean(self._judges.proxy(answers)),
            "kl_answer": fmean(sum(our) - sum(base) for our, base in zip(ours, bases, strict=True)),
        }
        return found | ({"gold": fmean(self._judges.gold(answers))} if self._judges.gold else {})


def roll_out(trainer: Trainer, prompts: Sequence[Prompt], config: UpdateConfig) -> list[TrainingSample]:
    """The policy's answer to each prompt, not credited yet."""
    drawn = trainer.sample(
        [one.token_ids for one in prompts],
        max_new_tokens=config.ppo_max_new_tokens,
        temperature=config.ppo_temperature,
    )
    return [
        TrainingSample(
            token_ids=prompt.token_ids + one.token_ids,
            positions=list(range(len(prompt.token_ids), len(prompt.token_ids) + len(one.token_ids))),
            weights={Stream.RL: 1.0},
            reward=0.0,
            behaviour=one.logprobs,
            temperature=config.ppo_temperature,
            index=prompt.place,
        )
        for prompt, one in zip(prompts, drawn, strict=True)
    ]


def credit_tokens(
    answers: Sequence[TrainingSample],
    *,
    scores: Sequence[float],
    logprobs: Sequence[Sequence[float]],
    base: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    config: UpdateConfig,
) -> Credited:
    """GAE on -ppo_kl (l - f) at each token and the score at the last, whitened over the iteration's tokens.

    An answer that was cut off counts as ended: the reward model judges it as it stands.
    """
    lengths = [len(one.positions) for one in answers]
    lengths_S = torch.tensor(lengths)
    old_K, base_K, value_K = (torch.tensor([one for row in rows for one in row]) for rows in (logprobs, base, values))
    reward_K = kl_reward(old_K, base_K, coefficient=config.ppo_kl)
    reward_K[lengths_S.cumsum(0) - 1] += torch.tensor(list(scores))
    credit = gae(reward_K, value_K, lengths_S, gamma=config.gae_gamma, lam=config.gae_lambda)
    advantages, returns = (part.split(lengths) for part in (whiten(credit.advantage_K), credit.return_K))
    return Credited(
        samples=[
            replace(one, reward=score, advantage=advantage.tolist(), proximal=list(row))
            for one, score, advantage, row in zip(answers, scores, advantages, logprobs, strict=True)
        ],
        values=[list(row) for row in values],
        returns=[part.tolist() for part in returns],
    )


def about(samples: Sequence[TrainingSample]) -> dict[str, float]:
    """Of an iteration's answers."""
    return {"answer_tokens": fmean(len(one.positions) for one in samples)}


def mean_of_steps(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """An iteration's numbers: means over its steps. It was applied if one was; it was far off only if all were."""
    names = dict.fromkeys(name for metrics in steps for name in metrics)
    found = {name: fmean(metrics[name] for metrics in steps if name in metrics) for name in names}
    return found | {
        name: worst(metrics[name] for metrics in steps)
        for name, worst in (("is_applied", max), ("is_finite", max), ("is_low_ess", min), ("is_high_kl", min))
    }


def summarise(history: History, *, best_iteration: int, num_planned: int) -> dict[str, float]:
    """Of the update: the numbers of the iteration that is kept, and what became of the others."""
    return history[best_iteration - 1] | {
        "num_steps": float(len(history)),
        "best_iteration": float(best_iteration),
        "is_stopped_early": float(len(history) < num_planned),
    }
