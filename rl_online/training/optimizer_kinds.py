"""Which torch optimizer moves which master, and what of each must be kept to go on to the bit.

adamw       torch's fused AdamW on everything
adamw8bit   torchao's, whose moments take 1 byte a number instead of 4 (block-wise, arXiv 2110.02861)
muon        torch's Muon (from 2.9 on) on hidden matrices, AdamW on embeddings, head, norms and biases; its step has
            the size of AdamW's (arXiv 2502.16982), so learning rate and weight decay mean the same for both
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate

MOMENTS = {"AdamW": ("exp_avg", "exp_avg_sq", "step"), "AdamW8bit": ("exp_avg", "exp_avg_sq", "step"),
           "Muon": ("momentum_buffer",)}  # fmt: skip
CODES, SCALE = "codes", "scale"  # of a moment in 8 bits; the third part, its table of values, is always the same
ALL_MOMENTS = sorted({one for moments in MOMENTS.values() for name in moments
                      for one in (name, f"{name}.{CODES}", f"{name}.{SCALE}")})  # fmt: skip


def make_optimizers(masters: Mapping[str, Tensor], config: UpdateConfig, hidden: Container[str]) -> list[Optimizer]:
    """Each master in exactly one. Raises ContradictoryUpdate for one that is not to be had here."""
    if config.optimizer == "adamw8bit":
        return [_adamw_8bit(masters.values(), config)]
    if config.optimizer == "adamw":
        return [_adamw(masters.values(), config)]
    matrices = [master for name, master in masters.items() if name in hidden]
    others = [master for name, master in masters.items() if name not in hidden]
    return [*([_muon(matrices, config)] if matrices else []), *([_adamw(others, config)] if others else [])]


def hidden_matrices(model: PreTrainedModel) -> set[str]:
    """Names of the two-dimensional weights that neither read tokens nor write them."""
    outer = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    head = model.get_output_embeddings()
    ids = {id(weight) for weight in [*outer, *([] if head is None else [head.weight])]}
    return {name for name, weight in model.named_parameters() if weight.dim() == 2 and id(weight) not in ids}


def move(optimizer: Optimizer, *, learning_rate: float) -> None:
    """One step by the gradients its masters carry, which are gone afterwards."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate
    with _compiled_on_gpus_only(optimizer):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def read_moments(optimizer: Optimizer, master: Tensor) -> dict[str, Tensor]:
    """Plain tensors by name, such as `exp_avg`, or `exp_avg.codes` and `exp_avg.scale`; none before the first step."""
    found: dict[str, Tensor] = {}
    for moment, value in optimizer.state.get(master, {}).items():
        if hasattr(value, CODES):
            found |= {f"{moment}.{part}": getattr(value, part) for part in (CODES, SCALE)}
        else:
            found[moment] = value
    return found


def write_moments(optimizer: Optimizer, master: Tensor, kept: Mapping[str, Tensor]) -> None:
    """Take over what `read_moments` gave. Those of another kind of optimizer are left: this one starts anew."""
    moments = MOMENTS[type(optimizer).__name__]
    if not all(moment in kept or f"{moment}.{CODES}" in kept for moment in moments):
        return
    is_fused = type(optimizer).__name__ == "AdamW"  # and wants its step beside the weights
    state: dict[str, Any] = {}
    for moment in moments:
        if moment == "step":
            state[moment] = kept[moment].to(master.device) if is_fused else kept[moment].clone()
        elif moment in kept:
            state[moment] = kept[moment].to(master.device)
        else:
            state[moment] = _in_8_bits(kept[f"{moment}.{CODES}"], kept[f"{moment}.{SCALE}"], moment).to(master.device)
    optimizer.state[master] = state


def _adamw(masters: Iterable[Tensor], config: UpdateConfig) -> Optimizer:
    return torch.optim.AdamW(
        masters,
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def _muon(masters: Iterable[Tensor], config: UpdateConfig) -> Optimizer:
    if not hasattr(torch.optim, "Muon"):
        raise ContradictoryUpdate(
            f"optimizer muon needs torch 2.9 or newer, and this is {torch.__version__}; install it or choose adamw"
        )
    return torch.optim.Muon(
        masters,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        momentum=config.muon_momentum,
        adjust_lr_fn="match_rms_adamw",
    )


def _adamw_8bit(masters: Iterable[Tensor], config: UpdateConfig) -> Optimizer:
    try:
        from torchao.optim import AdamW8bit
    except ImportError as error:
        raise ContradictoryUpdate(
            "optimizer adamw8bit needs torchao, which is not installed: pip install 'strop[adamw8bit]', or choose adamw"
        ) from error
    made: Optimizer = AdamW8bit(
        masters,
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
    )
    return made


@contextmanager
def _compiled_on_gpus_only(optimizer: Optimizer) -> Iterator[None]:
    """torchao compiles its step; on a CPU that needs a C++ compiler and pays for itself only after many updates."""
    if type(optimizer).__name__ != "AdamW8bit" or optimizer.param_groups[0]["params"][0].device.type != "cpu":
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _in_8_bits(codes: Tensor, scale: Tensor, moment: str) -> Tensor:
    from torchao.optim.subclass_8bit import OptimState8bit

    is_signed = moment == "exp_avg"
    made: Any = OptimState8bit.zeros(codes.shape, signed=is_signed, block_size=codes.numel() // scale.numel())
    made.codes.copy_(codes)
    made.scale.copy_(scale)
    return made
