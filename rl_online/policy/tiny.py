"""A two-layer policy with a word-level tokenizer, built from nothing: for tests and toy problems."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<end>"
UNKNOWN = "<unk>"
CHAT_TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def build_tiny_policy(
    folder: Path,
    words: Sequence[str],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    hidden: int = 32,
    context: int = 256,
) -> Path:
    """Write a Hugging Face folder whose vocabulary is `<end>`, `<unk>` and `words`, split at white space.

    Embeddings are tied and the end token doubles as padding, as in the default model. Equal arguments give equal bytes.
    """
    vocabulary = {word: index for index, word in enumerate([END, UNKNOWN, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).to(dtype=dtype)  # type: ignore[call-arg]
    model.save_pretrained(folder)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, unk_token=UNKNOWN, chat_template=CHAT_TEMPLATE
    )
    fast.save_pretrained(folder)
    return folder
