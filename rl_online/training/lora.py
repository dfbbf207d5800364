"""A low-rank adapter in training instead of all weights (LoRA, arXiv 2106.09685), by peft.

Nothing is ever merged in place: the base keeps its bytes, and a checkpoint holds base plus change, summed in fp32 and
rounded once. So the next update goes on from the base and the whole adapter, and roundings do not add up.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.algorithms.merge_error import measure_merges
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate

NAME = "default"
BASE = "base.safetensors"  # of a state: the weights under the adapter, before it was merged into the checkpoint
WEIGHTS = "adapter_model.safetensors"  # as peft names them
SETTINGS = "adapter_config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """The adapter in a network; its own weights are fp32 and the only ones that train."""

    model: PreTrainedModel
    settings: dict[str, Any]  # peft's, as JSON

    @classmethod
    def attach(cls, model: PreTrainedModel, config: UpdateConfig, *, seed: int) -> "Adapter":
        """A fresh one, which changes nothing yet. Raises ContradictoryUpdate without peft, or without such layers."""
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError as error:
            raise ContradictoryUpdate(
                "lora_rank is set, but peft is not installed: pip install 'strop[lora]', or set it to 0"
            ) from error
        targets = config.lora_targets
        lora = LoraConfig(
            r=config.lora_rank,
            lora_alpha=config.lora_alpha,
            target_modules=targets if targets == "all-linear" else targets.replace(" ", "").split(","),
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                inject_adapter_in_model(lora, model)
            except ValueError as error:
                raise ContradictoryUpdate(f"lora_targets is {targets!r}: {error}") from error
        model.eval()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".lora_" in name)
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        return cls(model=model, settings=_plain(lora.to_dict()))

    def layers(self) -> Iterator[tuple[str, Any]]:
        """The name of each weight that has an adapter, as the network without it would call it; and its peft layer."""
        for name, module in self.model.named_modules():
            if hasattr(module, "get_delta_weight"):
                yield f"{name}.weight", module

    def weights(self) -> dict[str, Tensor]:
        """Its own, under the names that peft gives them in a file."""
        return {
            f"base_model.model.{name.replace(f'.{NAME}.', '.')}": parameter.detach().contiguous()
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }

    @torch.no_grad()
    def merged(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """The whole network's weights with the adapter in them, and how much of its change the rounding lost."""
        weights = {
            name.replace(".base_layer.", "."): tensor
            for name, tensor in self.model.state_dict().items()
            if ".lora_" not in name
        }
        changes = {name: layer.get_delta_weight(NAME) for name, layer in self.layers()}
        lost = measure_merges([(weights[name], change) for name, change in changes.items()])
        for name, change in changes.items():
            weights[name] = (weights[name].float() + change).to(weights[name].dtype)
        return weights, {"lora_merge_error": lost.relative_error, "lora_moved_share": lost.moved_share}

    def save(self, folder: Path) -> None:
        """As peft would, without the path of the base."""
        save_file(self.weights(), folder / WEIGHTS)
        (folder / SETTINGS).write_text(json.dumps(self.settings, indent=1, sort_keys=True), "utf-8")

    def save_base(self, folder: Path) -> None:
        """What the checkpoint no longer tells: the weights that it merged changes into."""
        base = {name: layer.get_base_layer().weight.detach().contiguous() for name, layer in self.layers()}
        save_file(base, folder / BASE)

    def go_on(self, folder: Path) -> None:
        """From what `save` and `save_base` left in `folder`, in a network of the checkpoint it was merged into."""
        base, own = load_file(folder / BASE), load_file(folder / WEIGHTS)
        with torch.no_grad():
            for name, layer in self.layers():
                layer.get_base_layer().weight.copy_(base[name])
            for name, parameter in self.weights().items():
                parameter.copy_(own[name])


def adapter_kind(config: UpdateConfig) -> str | None:
    """Which adapters may go on from each other; None for none."""
    if not config.lora_rank:
        return None
    return f"rank {config.lora_rank}, alpha {config.lora_alpha}, on {config.lora_targets}"


def _plain(value: Any) -> Any:
    """Of peft's settings: sets in order, enums by value."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, set | list | tuple):
        return sorted(map(str, value))
    return value if value is None or isinstance(value, bool | int | float) else str(getattr(value, "value", value))
