"""Small products with simulated users, and a two-layer policy that learns from them by the real path.

An answer is one word. What users make of it goes through a reward spec, running baselines and the trainer, as in the
loop; the policy starts from demonstrations of how often it says what. For tests, and for `benchmarks/methods.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import torch

from rl_online.policy.load import load_tokenizer
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.baseline import RunningSlice, next_baselines
from rl_online.rewards.batch import Batch, Sample
from rl_online.rewards.composite import RewardSpec, reward_of
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.apply import Applied, Hooks, apply_update, select_credited
from rl_online.training.local import LocalTrainer

QUIET = Hooks(on_progress=lambda progress: None, is_cancelled=lambda: False, crash=lambda name: None)
CONFIG = UpdateConfig(learning_rate=1.5e-3, minibatch_size=64, micro_batch_tokens=4096, kto_weight=0.0)
DEMONSTRATIONS = 120  # of all situations together
START_EPOCHS = 20  # over the demonstrations


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One answer and what its user made of it."""

    situation: str
    answer: str
    logprob: float
    outcome: str  # accept, reject, silence, or unknown: nobody said anything
    scores: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """Situations that come equally often, what may be answered, and what a user makes of it."""

    situations: tuple[str, ...]
    answers: tuple[str, ...]  # the first is what it is there for; any other word counts as the last
    start: float  # how often the first is said before any learning, the others equally often
    react: Callable[[str, str, Random], tuple[str, Mapping[str, float | None]]]  # situation, answer -> outcome, scores
    is_sliced: bool  # whether each situation is a slice with a baseline of its own
    num_turns: int = 256  # of a round
    config: UpdateConfig = CONFIG


class Policy:
    """A two-layer policy in a folder under `root`, and its trainer."""

    def __init__(self, product: Product, root: Path, *, seed: int) -> None:
        self.product, self._rng = product, Random(seed)
        words = [*product.situations, *product.answers]
        folder = build_tiny_policy(root / f"tiny-{seed}", words, dtype=torch.float32, seed=seed)
        self.ids = {word: load_tokenizer(folder)(word)["input_ids"][0] for word in words}
        self.trainer = LocalTrainer(folder, config=product.config, device="cpu", seed=seed)
        self._draw = torch.Generator().manual_seed(seed)
        self._baselines: dict[str, RunningSlice] = {}
        self._imitate()

    def shares(self) -> dict[str, dict[str, float]]:
        """Situation -> answer -> probability, now."""
        logits_SV = self._logits(list(self.product.situations))
        return {
            situation: {answer: float(row_V.softmax(-1)[self.ids[answer]]) for answer in self.product.answers}
            for situation, row_V in zip(self.product.situations, logits_SV, strict=True)
        }

    def turns(self, number: int) -> list[Turn]:
        """Answers at temperature 1, one for each visit."""
        situations = [self._rng.choice(self.product.situations) for _ in range(number)]
        logp_NV = self._logits(situations).log_softmax(-1)
        drawn_N = torch.multinomial(logp_NV.exp(), 1, generator=self._draw).squeeze(1).tolist()
        words = {token: word for word, token in self.ids.items() if word in self.product.answers}
        found = []
        for situation, token, logp_V in zip(situations, drawn_N, logp_NV, strict=True):
            answer = words.get(token, self.product.answers[-1])
            outcome, scores = self.product.react(situation, answer, self._rng)
            found.append(
                Turn(
                    situation=situation,
                    answer=answer,
                    logprob=float(logp_V[self.ids[answer]]),
                    outcome=outcome,
                    scores=scores,
                )
            )
        return found

    def learn(self, turns: Sequence[Turn], spec: RewardSpec) -> Applied:
        """One update. A turn whose reward is not known is left out, as sealing leaves it out."""
        rewards = [reward_of(spec, outcome=turn.outcome, scores=turn.scores).value for turn in turns]
        known = [(turn, reward) for turn, reward in zip(turns, rewards, strict=True) if reward is not None]
        expected = next_baselines(self._baselines, [(self._slice(turn), reward) for turn, reward in known])
        self._baselines = expected.state
        return self._update(
            [
                self._sample(turn, reward, baseline)
                for (turn, reward), baseline in zip(known, expected.per_sample, strict=True)
            ],
            self.product.config,
        )

    def _slice(self, turn: Turn) -> str:
        return turn.situation if self.product.is_sliced else "all"

    def _imitate(self) -> None:
        first, *others = self.product.answers
        number = DEMONSTRATIONS // len(self.product.situations)
        num_first = round(number * self.product.start)
        said = [first] * num_first + [others[place % len(others)] for place in range(number - num_first)]
        samples = [self._demonstration(situation, answer) for situation in self.product.situations for answer in said]
        self._update(samples, replace(self.product.config, epochs=START_EPOCHS, minibatch_size=30))

    def _demonstration(self, situation: str, answer: str) -> Sample:
        """The answer, then the situation once more: what tells situations apart is there before any reward is."""
        ids = [self.ids[situation], self.ids[answer], self.ids[situation]]
        return Sample(
            token_ids=ids, prompt_length=1, mask=[0, 1, 1], behaviour_logprobs=None, reward=0.0, baseline=0.0,
            versions=[-1, -1, -1], row={"kind": "ce"},
        )  # fmt: skip

    def _update(self, samples: list[Sample], config: UpdateConfig) -> Applied:
        selection = select_credited(Batch(digest="", samples=samples), config, (1,))
        return apply_update(self.trainer, selection, config, seed=self._rng.randrange(2**31), base=None, hooks=QUIET)

    def _sample(self, turn: Turn, reward: float, baseline: float) -> Sample:
        return Sample(
            token_ids=[self.ids[turn.situation], self.ids[turn.answer]], prompt_length=1, mask=[0, 1],
            behaviour_logprobs=[0.0, turn.logprob], reward=reward, baseline=baseline, versions=[-1, 1],
            row={"kind": "rl"},
        )  # fmt: skip

    @torch.no_grad()
    def _logits(self, situations: Sequence[str]) -> torch.Tensor:
        ids_N1 = torch.tensor([[self.ids[one]] for one in situations])
        return self.trainer.model(input_ids=ids_N1).logits[:, -1].float()


def learn_rounds(policy: Policy, spec: RewardSpec, *, rounds: int) -> list[list[Turn]]:
    """The turns of each round, with the policy learning from them in between."""
    seen = []
    for _ in range(rounds):
        seen.append(policy.turns(policy.product.num_turns))
        policy.learn(seen[-1], spec)
    return seen
