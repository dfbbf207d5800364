"""The trainer in this process: one network on one device, fp32 master weights, AdamW.

Not here: which loss (objective), how many steps and in what order (apply), and files' durability (update).
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.policy.checkpointing import recompute_layers
from rl_online.policy.load import choose_device, load_policy
from rl_online.policy.sampling import sample_tokens
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.objective import Objective
from rl_online.training.optimizer import MasterAdamW
from rl_online.training.samples import TrainingSample
from rl_online.training.scoring import Layout, by_sample, passes, score_samples
from rl_online.training.state import TrainerState, read_state, write_state
from rl_online.training.trainer import ForwardBackward, Sampled, StepReport
from rl_online.weights.manifest import MANIFEST
from rl_online.weights.tensors import Tensor as RawTensor
from rl_online.weights.tensors import parse_header, read_tensor_file, weight_files, write_tensor_file

SNAPSHOT_WEIGHTS = "weights.safetensors"
SAFETENSORS_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class LocalTrainer:
    """Implements Trainer. Deterministic on one CPU with one thread count: equal calls give equal bits."""

    def __init__(
        self, folder: Path, *, config: UpdateConfig, device: str, seed: int, state: Path | None = None
    ) -> None:
        """Load the weights in `folder`, and the optimizer where the folder `state` left it (None: a fresh one).

        Raises ContradictoryUpdate for a config that the model cannot follow.
        """
        self.folder = folder
        self.device = choose_device(device)
        self.model: PreTrainedModel = load_policy(folder, device=self.device)
        self.layout = Layout.of(self.model, config)
        if config.gradient_checkpointing:
            try:
                recompute_layers(self.model)
            except ValueError as error:
                raise ContradictoryUpdate(f"gradient_checkpointing is on, but {error}; switch it off") from error
        self.optimizer = MasterAdamW(self.model.named_parameters(), config)
        self.generator = torch.Generator().manual_seed(seed)
        if state is not None:
            self._load_state(state, read_state(state))

    @property
    def optimizer_step(self) -> int:
        return self.optimizer.step_count

    def forward_backward(self, samples: Sequence[TrainingSample], objective: Objective) -> ForwardBackward:
        before = {name: gradient.clone() for name, gradient in self.optimizer.gradients.items()}
        losses: dict[str, float] = {}
        logprobs: list[list[float]] = [[] for _ in samples]

        def run() -> None:
            losses.clear()
            self.optimizer.gradients = {name: gradient.clone() for name, gradient in before.items()}
            for group, logp_K in passes(self.model, samples, self.layout):
                members = [samples[index] for index in group]
                terms = objective.terms(logp_K, members)
                if terms:
                    torch.stack(list(terms.values())).sum().backward()
                for name, term in terms.items():
                    losses[name] = losses.get(name, 0.0) + float(term.detach())
                for index, values in zip(group, by_sample(logp_K, members), strict=True):
                    logprobs[index] = values

        self.layout.fit(samples, run)
        padding_share, unsorted = self.layout.padding(samples)
        return ForwardBackward(
            losses=losses,
            logprobs=logprobs,
            num_passes=len(self.layout.groups(samples)),
            padding_share=padding_share,
            padding_share_unsorted=unsorted,
        )

    def optim_step(self, *, discard: bool = False, lr_scale: float = 1.0) -> StepReport:
        is_applied, grad_norm = self.optimizer.step(discard=discard, lr_scale=lr_scale)
        return StepReport(is_applied=is_applied, grad_norm=grad_norm)

    def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        return score_samples(self.model, samples, self.layout)

    def sample(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float) -> list[Sampled]:
        drawn = [
            sample_tokens(
                self.model, prompt, max_new_tokens=max_new_tokens, temperature=temperature, generator=self.generator
            )
            for prompt in prompts
        ]
        return [Sampled(token_ids=one.token_ids, logprobs=one.logprobs) for one in drawn]

    def save_weights(self, folder: Path) -> None:
        """The parent's folder with this network's weights: same files, same tensor names, same layout."""
        for path in sorted(self.folder.rglob("*")):
            target = folder / path.relative_to(self.folder)
            if path.is_file() and path.name != MANIFEST and path.suffix != ".safetensors":
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        weights = {name: _raw(tensor) for name, tensor in self.model.state_dict().items()}
        for path in weight_files(self.folder):
            header = read_tensor_file(path).header
            layout = parse_header(header)
            if any(
                name not in weights or (weights[name].dtype, weights[name].shape) != (spec.dtype, spec.shape)
                for name, spec in layout.items()
            ):
                self._save_as_transformers_would(folder)
                return
            write_tensor_file(folder / path.name, header, weights)

    def save_state(self, folder: Path) -> None:
        self.optimizer.save(folder)
        write_state(
            folder,
            TrainerState(
                optimizer_step=self.optimizer_step,
                generator=bytes(self.generator.get_state().tolist()).hex(),
                micro_batch_tokens=self.layout.max_tokens,
            ),
        )

    def save_snapshot(self, folder: Path) -> None:
        save_file(
            {name: parameter.detach().contiguous() for name, parameter in self.model.named_parameters()},
            folder / SNAPSHOT_WEIGHTS,
        )
        self.save_state(folder)

    def load_snapshot(self, folder: Path) -> None:
        weights = load_file(folder / SNAPSHOT_WEIGHTS, device=str(self.device))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])
        state = read_state(folder)
        self._load_state(folder, state)
        self.layout.max_tokens = state.micro_batch_tokens or self.layout.max_tokens

    def _load_state(self, folder: Path, state: TrainerState) -> None:
        self.optimizer.load(folder, state.optimizer_step)
        self.generator.set_state(torch.tensor(list(bytes.fromhex(state.generator)), dtype=torch.uint8))

    def _save_as_transformers_would(self, folder: Path) -> None:
        """For architectures whose files name or fuse tensors otherwise than the network does."""
        for path in folder.glob("*.safetensors"):
            path.unlink()
        self.model.save_pretrained(folder)


def _raw(tensor: Tensor) -> RawTensor:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return RawTensor(
        dtype=SAFETENSORS_NAMES.get(tensor.dtype, str(tensor.dtype)),
        shape=tuple(tensor.shape),
        data=flat.view(torch.uint8).numpy(),
    )
