"""The trainer in this process: one network on one device, fp32 master weights.

Not here: which loss (objective), how many steps and in what order (apply), and files' durability (update).
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.policy.checkpointing import recompute_layers
from rl_online.policy.load import choose_device, load_policy
from rl_online.policy.logprobs import can_pack, can_split
from rl_online.policy.sampling import sample_batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.checkpoint_files import ADAPTER, write_checkpoint
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.lora import Adapter, adapter_kind
from rl_online.training.objective import Objective
from rl_online.training.optimizer import TENSORS, MasterOptimizer
from rl_online.training.optimizer_kinds import hidden_matrices
from rl_online.training.samples import TrainingSample
from rl_online.training.scoring import (
    Layout,
    by_sample,
    choose_attention,
    one_pass,
    score_divergences,
    score_samples,
)
from rl_online.training.state import TrainerState, read_state, write_state
from rl_online.training.teacher import Teacher
from rl_online.training.trainer import ForwardBackward, Sampled, StepReport

SNAPSHOT_WEIGHTS = "weights.safetensors"


class LocalTrainer:
    """Implements Trainer. Deterministic on one CPU with one thread count: equal calls give equal bits."""

    is_writer = True  # of files; where several processes share the network, one is

    def __init__(
        self,
        folder: Path,
        *,
        config: UpdateConfig,
        device: str,
        seed: int,
        state: Path | None = None,
        teacher: Path | None = None,
    ) -> None:
        """Load the weights in `folder`, and the optimizer where the folder `state` left it (None: a fresh one).

        `teacher` is the folder of the network that taught samples are asked of; None: of this one itself.
        Raises ContradictoryUpdate for a config that the model cannot follow.
        """
        self.folder = folder
        self.device = choose_device(device)
        self.model = self._load(folder)
        left = None if state is None else read_state(state)
        self.adapter_kind = adapter_kind(config)
        self.adapter = Adapter.attach(self.model, config, seed=seed) if config.lora_rank else None
        if self.adapter and state and left and left.adapter == self.adapter_kind:
            self.adapter.go_on(state)
        self.layout = Layout.of(self.model, config)
        if config.gradient_checkpointing:
            try:
                recompute_layers(self.model)
            except ValueError as error:
                raise ContradictoryUpdate(f"gradient_checkpointing is on, but {error}; switch it off") from error
        self.optimizer = self._open_optimizer(config)
        asked = self.model if teacher is None else load_policy(teacher, device=self.device)
        self.teacher = Teacher(
            model=asked,
            is_split=self.layout.is_split if teacher is None else can_split(asked),
            beta=config.distill_beta,
        )
        self.generator = torch.Generator().manual_seed(seed)
        if state and left:
            self._load_state(state, left)

    @property
    def optimizer_step(self) -> int:
        return self.optimizer.step_count

    def _load(self, folder: Path) -> PreTrainedModel:
        return load_policy(folder, device=self.device)

    def _open_optimizer(self, config: UpdateConfig) -> MasterOptimizer:
        trained = [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        return MasterOptimizer(trained, config, hidden=hidden_matrices(self.model))

    def forward_backward(self, samples: Sequence[TrainingSample], objective: Objective) -> ForwardBackward:
        before = {name: gradient.clone() for name, gradient in self.optimizer.gradients.items()}
        losses: dict[str, float] = {}
        logprobs: list[list[float]] = [[] for _ in samples]

        def run() -> None:
            losses.clear()
            self.optimizer.gradients = {name: gradient.clone() for name, gradient in before.items()}
            for indices in self.layout.groups(samples):
                found, values = self._learn(indices, samples, objective)
                for name, loss in found.items():
                    losses[name] = losses.get(name, 0.0) + loss
                for index, one in zip(indices, values, strict=True):
                    logprobs[index] = one

        self.layout.fit(samples, run)
        padding_share, unsorted = self.layout.padding(samples)
        return ForwardBackward(
            losses=losses,
            logprobs=logprobs,
            num_passes=len(self.layout.groups(samples)),
            padding_share=padding_share,
            padding_share_unsorted=unsorted,
        )

    def _learn(
        self, indices: list[int], samples: Sequence[TrainingSample], objective: Objective
    ) -> tuple[dict[str, float], list[list[float]]]:
        """Add the gradient over the samples of one pass; its loss terms, and its samples' log-probabilities."""
        seen = one_pass(self.model, indices, samples, self.layout, teacher=self.teacher)
        members = [samples[index] for index in indices]
        terms = objective.terms(seen.logp_K, members, seen.divergence_K)
        if terms:
            torch.stack(list(terms.values())).sum().backward()
        losses = {name: float(term.detach()) for name, term in terms.items()}
        return losses, by_sample(seen.logp_K, members)

    def optim_step(self, *, discard: bool = False, lr_scale: float = 1.0) -> StepReport:
        is_applied, grad_norm = self.optimizer.step(discard=discard, lr_scale=lr_scale)
        return StepReport(is_applied=is_applied, grad_norm=grad_norm)

    def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        return score_samples(self.model, samples, self.layout)

    def divergences(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        return score_divergences(self.model, samples, self.layout, self.teacher)

    def sample(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float) -> list[Sampled]:
        # Chosen by length alone, not by what ran before: a resumed update has to draw the same.
        choose_attention(self.model, max_length=max(map(len, prompts)) + max_new_tokens)
        drawn = sample_batch(
            self.model,
            prompts,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            generator=self.generator,
            can_pad=can_pack(self.model),
        )
        return [Sampled(token_ids=one.token_ids, logprobs=one.logprobs) for one in drawn]

    def save_weights(self, folder: Path) -> dict[str, float]:
        """The parent's folder with this network's weights: same files, same tensor names, same layout.

        An adapter is merged into them, and lies beside them as well.
        """
        weights, numbers = self.adapter.merged() if self.adapter else (self._weights(), {})
        if self.is_writer:
            write_checkpoint(self.folder, folder, self.model, weights)
        if self.adapter:
            (folder / ADAPTER).mkdir()
            self.adapter.save(folder / ADAPTER)
        return numbers

    def save_state(self, folder: Path) -> None:
        self._save_progress(folder)
        if self.adapter:
            self.adapter.save(folder)
            self.adapter.save_base(folder)

    def _save_progress(self, folder: Path) -> None:
        tensors = self.optimizer.tensors()
        if not self.is_writer:
            return
        save_file(tensors, folder / TENSORS)
        write_state(
            folder,
            TrainerState(
                optimizer_step=self.optimizer_step,
                generator=bytes(self.generator.get_state().tolist()).hex(),
                micro_batch_tokens=self.layout.max_tokens,
                adapter=self.adapter_kind,
            ),
        )

    def save_snapshot(self, folder: Path) -> None:
        weights = self.optimizer.weights()
        if self.is_writer:
            save_file(weights, folder / SNAPSHOT_WEIGHTS)
        self._save_progress(folder)

    def load_snapshot(self, folder: Path) -> None:
        self.optimizer.set_weights(load_file(folder / SNAPSHOT_WEIGHTS))
        state = read_state(folder)
        self._load_state(folder, state)
        self.layout.max_tokens = min(self.layout.max_tokens, state.micro_batch_tokens or self.layout.max_tokens)

    def _weights(self) -> dict[str, Tensor]:
        """Of the whole network, by its own names."""
        trained = self.optimizer.weights()
        names = {id(parameter): name for name, parameter in self.optimizer.parameters.items()}
        return {
            name: trained[names[id(tensor)]] if id(tensor) in names else tensor
            for name, tensor in self.model.state_dict(keep_vars=True).items()
        }

    def _load_state(self, folder: Path, state: TrainerState) -> None:
        if state.adapter == self.adapter_kind:
            self.optimizer.load(folder, state.optimizer_step)
        self.optimizer.step_count = state.optimizer_step
        self.generator.set_state(torch.tensor(list(bytes.fromhex(state.generator)), dtype=torch.uint8))
