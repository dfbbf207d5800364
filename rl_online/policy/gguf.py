"""From a quantised GGUF file to a plain Hugging Face folder in bfloat16.

transformers dequantises the file, but cannot save what it made; so the weights move into a fresh network first.
"""

import copy
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write config, weights and tokenizer of `gguf` into `folder`."""
    quantised = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
    )
    config = copy.deepcopy(quantised.config)
    del config.quantization_config
    config.dtype = torch.bfloat16
    plain = type(quantised)(config)
    plain.load_state_dict(quantised.state_dict())
    plain.bfloat16().save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    tokenizer.save_pretrained(folder)
