"""A trainer of networks that say numbers: reward models, and the value function of PPO.

Like LocalTrainer it holds weights with an optimizer and knows no algorithm: which places are read and what loss is made
of them, the caller says.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.policy.checkpointing import recompute_layers
from rl_online.policy.load import choose_device
from rl_online.policy.logprobs import pad_rows
from rl_online.policy.scalar_head import HEAD, load_scalar, read_scalars
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.optimizer import MasterOptimizer
from rl_online.training.optimizer_kinds import hidden_matrices
from rl_online.training.samples import TrainingSample
from rl_online.training.scoring import Layout, choose_attention
from rl_online.training.state import TrainerState, read_state, write_state
from rl_online.training.trainer import StepReport
from rl_online.weights.manifest import MANIFEST

WEIGHTS = "weights.safetensors"

Reads = Callable[[TrainingSample], list[int]]  # the places whose states are read
Loss = Callable[[Tensor, list[int]], Tensor]  # of the numbers read in one pass, and of the indices of its samples


def after_the_last(sample: TrainingSample) -> list[int]:
    """What a reward model reads: the state that has seen the whole answer."""
    return [len(sample) - 1]


def before_each(sample: TrainingSample) -> list[int]:
    """What a value function reads: the state that each trained token was chosen in."""
    return [place - 1 for place in sample.positions]


def refuse_for_scalar(config: UpdateConfig) -> None:
    """Raises ContradictoryUpdate for what only a policy's trainer can do."""
    if config.lora_rank:
        raise ContradictoryUpdate(
            f"lora_rank is {config.lora_rank}, but a network that says numbers trains every weight; set it to 0"
        )
    if config.packing:
        raise ContradictoryUpdate("packing is on, but a network that says numbers is read unpacked; switch it off")


class ScalarTrainer:
    """Deterministic on one CPU with one thread count: equal calls give equal bits."""

    def __init__(self, folder: Path, *, config: UpdateConfig, device: str, reads: Reads) -> None:
        """Of a reward model in `folder`, or a policy, which gets a head of zeros. Raises ContradictoryUpdate."""
        refuse_for_scalar(config)
        self.folder = folder
        self.reads = reads
        try:
            self.model: PreTrainedModel = load_scalar(folder, device=choose_device(device))
            if config.gradient_checkpointing:
                recompute_layers(self.model)
        except ValueError as error:
            raise ContradictoryUpdate(str(error)) from error
        self.layout = Layout(is_split=True, is_packed=False, max_tokens=config.micro_batch_tokens)
        hidden = hidden_matrices(self.model) - {HEAD}
        self.optimizer = MasterOptimizer(self.model.named_parameters(), config, hidden=hidden)

    def values(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """What is read of each sample, without gradient."""
        return read_samples(self.model, samples, self.reads, self.layout)

    def forward_backward(self, samples: Sequence[TrainingSample], loss: Loss) -> float:
        """Add the gradient of `loss`, summed over passes; its value. Pairs share a pass."""
        before = {name: gradient.clone() for name, gradient in self.optimizer.gradients.items()}

        def run() -> float:
            self.optimizer.gradients = {name: gradient.clone() for name, gradient in before.items()}
            total = 0.0
            for group, value_K in _passes(self.model, samples, self.reads, self.layout):
                part = loss(value_K, group)
                part.backward()
                total += float(part.detach())
            return total

        return self.layout.fit(samples, run)

    def optim_step(self, *, discard: bool = False, lr_scale: float = 1.0) -> StepReport:
        is_applied, grad_norm = self.optimizer.step(discard=discard, lr_scale=lr_scale)
        return StepReport(is_applied=is_applied, grad_norm=grad_norm)

    def save_weights(self, folder: Path) -> None:
        """A sequence classifier's folder, with the tokenizer of the policy it was made from."""
        self.model.save_pretrained(folder)
        for path in sorted(self.folder.iterdir()):
            is_other = path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json")
            if path.is_file() and path.name != MANIFEST and not is_other and not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)

    def save_snapshot(self, folder: Path) -> None:
        weights = {name: parameter.detach().contiguous() for name, parameter in self.model.named_parameters()}
        save_file(weights, folder / WEIGHTS)
        self.optimizer.save(folder)
        step, tokens = self.optimizer.step_count, self.layout.max_tokens
        write_state(folder, TrainerState(optimizer_step=step, generator="", micro_batch_tokens=tokens))

    def load_snapshot(self, folder: Path) -> None:
        weights, state = load_file(folder / WEIGHTS, device=str(self.model.device)), read_state(folder)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])
        self.optimizer.load(folder, state.optimizer_step)
        self.layout.max_tokens = state.micro_batch_tokens or self.layout.max_tokens


@torch.no_grad()
def read_samples(
    model: PreTrainedModel, samples: Sequence[TrainingSample], reads: Reads, layout: Layout
) -> list[list[float]]:
    def read() -> list[list[float]]:
        found: list[list[float]] = [[] for _ in samples]
        for group, value_K in _passes(model, samples, reads, layout):
            parts = value_K.cpu().split([len(reads(samples[index])) for index in group])
            for index, part in zip(group, parts, strict=True):
                found[index] = part.tolist()
        return found

    return layout.fit(samples, read)


def _passes(
    model: PreTrainedModel, samples: Sequence[TrainingSample], reads: Reads, layout: Layout
) -> Iterator[tuple[list[int], Tensor]]:
    for group in layout.groups(samples):
        choose_attention(model, max_length=max(len(samples[index]) for index in group))
        ids = [samples[index].token_ids for index in group]
        rows = pad_rows(ids, [reads(samples[index]) for index in group], [1.0] * len(group), device=model.device)
        yield group, read_scalars(model, rows)
