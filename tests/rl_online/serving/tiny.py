"""Small checkpoints with real files: a random network, and one that recites a text token by token.

Its tokenizer is byte-level BPE without merges, so every byte is a token, plus whatever longer pieces a test names.
"""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rl_online.serving.detokenize import byte_alphabet
from rl_online.weights.manifest import FileRow, Manifest, read_manifest, write_manifest
from rl_online.weights.publish import DeltaRef, publish_delta

POLICY = "0199a3d1-0000-7000-8000-00000000abcd"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 512
START, END = 256, 257  # ids of <|im_start|> and <|im_end|>
FIRST_PIECE = 258


def write_tokenizer(folder: Path, pieces: list[bytes]) -> None:
    """Ids 0-255 are the bytes, then the two specials, then the pieces in order."""
    letter = {byte: letter for letter, byte in byte_alphabet().items()}
    vocabulary = {letter[byte]: byte for byte in range(256)}
    specials = ["<|im_start|>", "<|im_end|>"]
    vocabulary |= {name: 256 + i for i, name in enumerate(specials)}
    vocabulary |= {"".join(letter[b] for b in piece): FIRST_PIECE + i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in specials])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


def describe(folder: Path, policy: str, version: int, parent: Manifest | None = None) -> Manifest:
    return write_manifest(
        folder,
        policy=policy,
        version=version,
        parent=parent and parent.version,
        parent_tree_digest=parent and parent.tree_digest,
    )


def write_random(
    root: Path,
    *,
    policy: str = POLICY,
    version: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    context: int = CONTEXT,
) -> Path:
    """Two layers with weights large enough that its distributions are far from flat."""
    folder = root / policy / f"v{version:06d}"
    folder.mkdir(parents=True)
    write_tokenizer(folder, [])
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=FIRST_PIECE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        initializer_range=0.4,
        eos_token_id=END,
        bos_token_id=None,
        pad_token_id=None,
    )
    LlamaForCausalLM(config).to(dtype).save_pretrained(folder)
    describe(folder, policy, version)
    return folder


def write_reciter(root: Path, pieces: list[bytes], *, policy: str = POLICY, version: int = 1) -> Path:
    """A checkpoint that, after any byte or start token, says exactly these pieces and then its end token.

    Pieces are distinct. Embeddings are one-hot, attention and MLP add nothing: the last token alone decides the next.
    """
    assert len(set(pieces)) == len(pieces) and all(len(piece) > 1 for piece in pieces)
    folder = root / policy / f"v{version:06d}"
    folder.mkdir(parents=True)
    write_tokenizer(folder, pieces)
    size = FIRST_PIECE + len(pieces)
    width = size + size % 2
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        eos_token_id=END,
        bos_token_id=None,
        pad_token_id=None,
    )
    network = LlamaForCausalLM(config)
    follower = {token: FIRST_PIECE for token in range(FIRST_PIECE)}
    follower |= {FIRST_PIECE + i: FIRST_PIECE + i + 1 for i in range(len(pieces) - 1)} | {size - 1: END}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.model.norm.weight.fill_(1)
        network.model.embed_tokens.weight.copy_(torch.eye(size, width))
        for token, following in follower.items():
            network.lm_head.weight[following, token] = 10.0
    network.save_pretrained(folder)
    describe(folder, policy, version)
    return folder


def write_child(parent: Path, *, version: int, scale: float = 1.01) -> tuple[Path, DeltaRef]:
    """A checkpoint whose layer-0 weights are the parent's times `scale`, and the delta that leads to it."""
    folder = parent.with_name(f"v{version:06d}")
    shutil.copytree(parent, folder)
    before = json.loads((folder / "MANIFEST.json").read_text())
    (folder / "MANIFEST.json").unlink()
    state = load_file(folder / "model.safetensors")
    state = {name: t * scale if ".layers.0.mlp" in name else t for name, t in state.items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    write_manifest(
        folder,
        policy=before["policy"],
        version=version,
        parent=before["version"],
        parent_tree_digest=before["tree_digest"],
    )
    return folder, publish_delta(parent, folder, parent.with_name("deltas"))


def flip_byte(path: Path, at: int = -100) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def describe_with_extra(folder: Path, name: str) -> Manifest:
    """Rewrites the folder's manifest as a publisher gone wrong would: with one more file, named as told."""
    manifest = read_manifest(folder)
    extra = FileRow(size=1, sha256=hashlib.sha256(b"x").hexdigest())
    wrong = replace(manifest, files=manifest.files | {name: extra})
    (folder / "MANIFEST.json").write_bytes(wrong.to_bytes())
    return wrong
