"""A policy network out of a checkpoint folder anyone could load.

Safetensors only, never code from the folder. Not here: where folders come from (store, hub).
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

TORCH_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def choose_device(name: str) -> torch.device:
    """`auto` takes the GPU when there is one. Raises ValueError when `cuda` is asked for and there is none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees no GPU here; use auto or cpu")
    return torch.device(name)


def load_policy(
    folder: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> PreTrainedModel:
    """The network in `folder`, in its own dtype unless another is named; in eval mode, so training has no dropout."""
    logging.disable_progress_bar()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype or "auto",
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        attn_implementation="sdpa",
    )
    return model.to(device).eval()  # type: ignore[arg-type]


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    return tokenizer
