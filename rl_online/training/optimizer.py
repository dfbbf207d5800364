"""AdamW on fp32 master weights behind a low-precision network.

A bfloat16 weight and the 16 bits below it make the master exactly: the weight is the master rounded half away from
zero, so the low bits say which way it was rounded. Only those 2 bytes per weight are stored beside the checkpoint.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter

from rl_online.rewards.update_config import UpdateConfig

TENSORS = "optimizer.safetensors"
HALF = 0x8000
LOW_MASK = 0xFFFF
LOW_BITS = 16
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class MasterAdamW:
    """Holds masters, gradients and moments in fp32 for parameters of any float type."""

    def __init__(self, parameters: Iterable[tuple[str, Parameter]], config: UpdateConfig) -> None:
        self.parameters = dict(parameters)
        self.masters = {
            name: parameter.detach() if parameter.dtype is torch.float32 else parameter.detach().float()
            for name, parameter in self.parameters.items()
        }
        self.gradients: dict[str, Tensor] = {}
        self.grad_clip = config.grad_clip
        self.learning_rate = config.learning_rate
        self.step_count = 0
        self.adam = torch.optim.AdamW(
            self.masters.values(),
            lr=config.learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
            fused=True,
        )
        for name, parameter in self.parameters.items():
            parameter.register_post_accumulate_grad_hook(self._collector(name))

    def step(self, *, discard: bool = False, lr_scale: float = 1.0) -> tuple[bool, float]:
        """Apply the collected gradient and forget it; returns whether it was applied, and its norm before clipping."""
        gradients, self.gradients = self.gradients, {}
        norms = [gradient.norm() for gradient in gradients.values()]
        norm = float(torch.stack(norms).double().square().sum().sqrt()) if norms else 0.0
        if discard or not norms or not math.isfinite(norm):
            return False, norm
        scale = min(1.0, self.grad_clip / (norm + 1e-6))
        for name, gradient in gradients.items():
            self.masters[name].grad = gradient.mul_(scale)
        self.adam.param_groups[0]["lr"] = self.learning_rate * lr_scale
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        self._write_back(gradients)
        self.step_count += 1
        return True, norm

    def save(self, folder: Path) -> None:
        """Moments, and what the masters know beyond the weights, as one safetensors file in `folder`."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            state = self.adam.state.get(self.masters[name], {})
            for moment in MOMENTS:
                if moment in state:
                    tensors[f"{moment}.{name}"] = state[moment]
            if parameter.dtype is torch.bfloat16:
                tensors[f"low.{name}"] = split_master(self.masters[name])[1]
            elif parameter.dtype is not torch.float32:
                tensors[f"master.{name}"] = self.masters[name]
        save_file(tensors, folder / TENSORS)

    def load(self, folder: Path, step_count: int) -> None:
        """Take over what `save` wrote, for the weights now in the parameters."""
        tensors = load_file(folder / TENSORS)
        self.step_count = step_count
        for name, parameter in self.parameters.items():
            master = self.masters[name]
            if f"low.{name}" in tensors:
                master.copy_(join_master(parameter.detach(), tensors[f"low.{name}"].to(master.device)))
            elif f"master.{name}" in tensors:
                master.copy_(tensors[f"master.{name}"])
            if f"exp_avg.{name}" in tensors:
                self.adam.state[master] = {moment: tensors[f"{moment}.{name}"].to(master.device) for moment in MOMENTS}

    def _collector(self, name: str) -> Callable[[Tensor], None]:
        def collect(parameter: Tensor) -> None:
            # Sum in fp32 and free at once: summing micro-batches in bfloat16 would round small gradients away.
            # Taken off first: one left behind when memory runs out here would be added to by the next try.
            gradient, parameter.grad = parameter.grad, None
            assert gradient is not None
            if name in self.gradients:
                self.gradients[name].add_(gradient)
            else:
                self.gradients[name] = gradient.float()

        return collect

    def _write_back(self, names: Iterable[str]) -> None:
        with torch.no_grad():
            for name in names:
                parameter, master = self.parameters[name], self.masters[name]
                if parameter.dtype is torch.bfloat16:
                    parameter.copy_(split_master(master)[0])
                elif parameter.dtype is not torch.float32:
                    parameter.copy_(master)


def split_master(master: Tensor) -> tuple[Tensor, Tensor]:
    """(weight bfloat16, low int16) of an fp32 master; exact, see join_master."""
    bits = master.view(torch.int32)
    weight = ((bits + HALF) >> LOW_BITS).to(torch.int16).view(torch.bfloat16)
    return weight, (bits & LOW_MASK).to(torch.int16)


def join_master(weight: Tensor, low: Tensor) -> Tensor:
    """The fp32 master whose split is (weight, low)."""
    low_bits = low.to(torch.int32) & LOW_MASK
    high_bits = weight.view(torch.int16).to(torch.int32) - (low_bits >> (LOW_BITS - 1))
    return ((high_bits << LOW_BITS) | low_bits).view(torch.float32)
