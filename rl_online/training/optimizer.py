"""An optimizer on fp32 master weights behind a low-precision network.

A bfloat16 weight and the 16 bits below it make the master exactly: the weight is the master rounded half away from
zero, so the low bits say which way it was rounded. Only those 2 bytes per weight are stored beside the checkpoint.
"""

import math
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.optimizer_kinds import ALL_MOMENTS, make_optimizers, move, read_moments, write_moments

TENSORS = "optimizer.safetensors"
HALF = 0x8000
LOW_MASK = 0xFFFF
LOW_BITS = 16
KEPT = ("low", "master", *ALL_MOMENTS)  # of each parameter


class MasterOptimizer:
    """Holds masters, gradients and moments in fp32 for parameters of any float type."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, Parameter]],
        config: UpdateConfig,
        *,
        hidden: Container[str] = (),
        dtypes: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        """`hidden` names the matrices that Muon may take. `dtypes`, by name, are those the weights are stored in where
        that is not their own. Raises ContradictoryUpdate for an optimizer that is not to be had here.
        """
        self.parameters = dict(parameters)
        self.dtypes = dtypes or {name: parameter.dtype for name, parameter in self.parameters.items()}
        self.masters = {name: _master(self._local(parameter.detach())) for name, parameter in self.parameters.items()}
        self.gradients: dict[str, Tensor] = {}
        self.grad_clip = config.grad_clip
        self.learning_rate = config.learning_rate
        self.step_count = 0
        self.optimizers = make_optimizers(self.masters, config, hidden)
        self._mover = {id(one): mover for mover in self.optimizers for one in mover.param_groups[0]["params"]}
        for name, parameter in self.parameters.items():
            parameter.register_post_accumulate_grad_hook(self._collector(name))

    def step(self, *, discard: bool = False, lr_scale: float = 1.0) -> tuple[bool, float]:
        """Apply the collected gradient and forget it; returns whether it was applied, and its norm before clipping."""
        gradients, self.gradients = self.gradients, {}
        norms = [gradient.norm() for gradient in gradients.values()]
        norm = float(self._sum(torch.stack(norms).double().square().sum()).sqrt()) if norms else 0.0
        if discard or not norms or not math.isfinite(norm):
            return False, norm
        scale = min(1.0, self.grad_clip / (norm + 1e-6))
        for name, gradient in gradients.items():
            self.masters[name].grad = gradient.mul_(scale)
        for optimizer in self.optimizers:
            move(optimizer, learning_rate=self.learning_rate * lr_scale)
        self._write_back(gradients)
        self.step_count += 1
        return True, norm

    def weights(self) -> dict[str, Tensor]:
        """The trained weights, whole and as they are stored."""
        return {
            name: _rounded(self._whole(name, master), self.dtypes[name]).contiguous()
            for name, master in self.masters.items()
        }

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take over what `weights` gave; masters below 32 bits follow with `load`."""
        for name, parameter in self.parameters.items():
            self._local(parameter.detach()).copy_(self._part(name, weights[name]))

    def tensors(self) -> dict[str, Tensor]:
        """Moments, and what the masters know beyond the weights: all that `load` needs."""
        found: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            for moment, value in read_moments(self._mover[id(master)], master).items():
                found[f"{moment}.{name}"] = self._whole(name, value)
            if self.dtypes[name] is torch.bfloat16:
                found[f"low.{name}"] = split_master(self._whole(name, master))[1]
            elif self.dtypes[name] is not torch.float32:
                found[f"master.{name}"] = self._whole(name, master)
        return found

    def save(self, folder: Path) -> None:
        """`tensors` as one safetensors file in `folder`."""
        save_file(self.tensors(), folder / TENSORS)

    def load(self, folder: Path, step_count: int) -> None:
        """Take over what `save` wrote, for the weights now in the parameters."""
        tensors = load_file(folder / TENSORS)
        self.step_count = step_count
        for name, parameter in self.parameters.items():
            master = self.masters[name]
            kept = {kind: self._part(name, tensors[key]) for kind in KEPT if (key := f"{kind}.{name}") in tensors}
            if "low" in kept:
                weight = self._local(parameter.detach()).to(torch.bfloat16)
                master.copy_(join_master(weight, kept["low"].to(master.device)))
            elif "master" in kept:
                master.copy_(kept["master"])
            write_moments(self._mover[id(master)], master, kept)

    # What differs where a weight is spread over processes.

    def _local(self, tensor: Tensor) -> Tensor:
        """The part of a weight or gradient that this process holds."""
        return tensor

    def _whole(self, name: str, part: Tensor) -> Tensor:
        """The parts of all processes put together, of a tensor of the shape of the weight `name`."""
        return part

    def _part(self, name: str, whole: Tensor) -> Tensor:
        """The reverse of `_whole`."""
        return whole

    def _sum(self, value: Tensor) -> Tensor:
        """Over all processes."""
        return value

    def _collector(self, name: str) -> Callable[[Tensor], None]:
        def collect(parameter: Tensor) -> None:
            # Sum in fp32 and free at once: summing micro-batches in bfloat16 would round small gradients away.
            # Taken off first: one left behind when memory runs out here would be added to by the next try.
            gradient, parameter.grad = parameter.grad, None
            assert gradient is not None
            gradient = self._local(gradient)
            if name in self.gradients:
                self.gradients[name].add_(gradient)
            else:
                self.gradients[name] = gradient.float()

        return collect

    def _write_back(self, names: Iterable[str]) -> None:
        with torch.no_grad():
            for name in names:
                parameter, master = self.parameters[name], self.masters[name]
                if parameter.dtype is not torch.float32:
                    parameter.copy_(_rounded(master, parameter.dtype))


def _master(weight: Tensor) -> Tensor:
    return weight if weight.dtype is torch.float32 else weight.float()


def _rounded(master: Tensor, dtype: torch.dtype) -> Tensor:
    return split_master(master)[0] if dtype is torch.bfloat16 else master.to(dtype)


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
