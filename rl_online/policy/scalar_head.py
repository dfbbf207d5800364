"""A policy's trunk with a linear head that says one number for the text up to a token: reward models, value functions.

On disk such a network is a sequence classifier of transformers with one label. Its own pooling is not used: that looks
for the padding token, which in many tokenizers is the end token, so it would read the state before a real end. Places
are given instead; its config names no padding token, so that a plain loader scores texts one at a time, rightly.
"""

# B rows, K places that are read, H hidden size

from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.utils import logging

from rl_online.policy.logprobs import TokenRows

HEAD = "score.weight"


def load_scalar(folder: Path, *, device: torch.device | str = "cpu") -> PreTrainedModel:
    """The network in `folder` in its own dtype and eval mode; a head of zeros where the folder is a plain policy's.

    Raises ValueError for an architecture that transformers cannot put such a head on.
    """
    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # a head that is not there yet is no news here
    try:
        model, info = AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=1,
            dtype="auto",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    finally:
        logging.set_verbosity(verbosity)
    if HEAD not in dict(model.named_parameters()) or set(info["missing_keys"]) - {HEAD}:
        raise ValueError(f"{type(model).__name__} has no linear head named score over its trunk; take another policy")
    if HEAD in info["missing_keys"]:
        torch.nn.init.zeros_(model.get_parameter(HEAD))
    model.config.get_text_config().pad_token_id = None
    return model.to(device).eval()


def read_scalars(model: PreTrainedModel, rows: TokenRows) -> Tensor:
    """The head's number after each place of `rows`, float32 [K].

    No attention mask is needed: padding is on the right, and a causal trunk never sees what comes after.
    """
    hidden_BTH = model.base_model(input_ids=rows.ids_BT, use_cache=False).last_hidden_state
    hidden_KH = hidden_BTH.flatten(0, 1).index_select(0, rows.row_K * rows.ids_BT.shape[1] + rows.position_K)
    return hidden_KH.float() @ model.get_parameter(HEAD)[0].float()
