"""Gradient checkpointing: layers are computed again in the backward pass instead of kept. Same bits, less memory."""

from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


def recompute_layers(model: PreTrainedModel) -> None:
    """Switch it on for a model that stays in eval mode. Raises ValueError for one that cannot."""
    # Renamed within the range of releases we take; the old name warns.
    name = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    enable = getattr(model, f"{name}_checkpointing_enable")
    enable(**{f"{name}_checkpointing_kwargs": {"use_reentrant": False}})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True  # this flag alone: everything below it stays in eval mode, without dropout
