"""Gradient checkpointing: layers are computed again in the backward pass instead of kept. Same bits, less memory."""

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

MAX_DIFFERENCE = 1e-3  # of the mean logit, between two passes over the same tokens: no rounding makes more


def recompute_layers(model: PreTrainedModel) -> None:
    """Switch it on for a model that stays in eval mode. Raises ValueError for one that cannot, or draws by chance."""
    # Renamed within the range of releases we take; the old name warns.
    name = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    enable = getattr(model, f"{name}_checkpointing_enable")
    enable(**{f"{name}_checkpointing_kwargs": {"use_reentrant": False}})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True  # this flag alone: everything below it stays in eval mode, without dropout
            for probability in [key for key, value in vars(module).items() if "drop" in key and type(value) is float]:
                setattr(module, probability, 0.0)  # of dropout that the layer itself does
    _refuse_chance(model)


@torch.no_grad()
def _refuse_chance(model: PreTrainedModel) -> None:
    ids = torch.zeros(1, 8, dtype=torch.int64, device=model.device)
    first, second = (model(input_ids=ids, use_cache=False).logits.float() for _ in range(2))
    if (first - second).abs().mean() > MAX_DIFFERENCE * first.abs().mean():
        raise ValueError(f"{type(model).__name__} keeps dropout on in layers that are computed again")
