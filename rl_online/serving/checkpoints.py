"""A checkpoint in memory: how a folder, or a delta on top of held weights, becomes a network that may be named.

Whatever goes wrong raises LoadRefused before anything is returned, and nothing held before is touched. The digest of
a held checkpoint is computed from the network's own tensors after it was built. Not here: fetching (serving.puller)
and running (serving.decoding).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig

from rl_online.policy.end_tokens import all_ends, named_ends
from rl_online.serving.detokenize import Vocabulary
from rl_online.serving.protocol import CheckpointName, InvalidRequest, LoadRefused, TokenText
from rl_online.weights.errors import CorruptCheckpoint, WrongBase
from rl_online.weights.manifest import FileRow, Manifest, tensor_rows, tree_digest, verify_folder
from rl_online.weights.publish import decode_published, parse_delta_manifest
from rl_online.weights.tensors import Tensor, read_tensors

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens_map*", "added_tokens*", "chat_template*")


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Everything about a checkpoint that turns text into ids and back; versions with equal files share one."""

    tokenizer: Any
    vocabulary: Vocabulary
    digest: str  # of the tokenizer's files
    lock: Lock  # a fast tokenizer must not be entered by two threads

    def encode(
        self,
        *,
        messages: Sequence[dict[str, Any]] | None,
        prompt: str | None,
        completion: str | None,
        tools: Sequence[dict[str, Any]] | None,
    ) -> list[int]:
        if sum(given is not None for given in (messages, prompt, completion)) != 1:
            raise InvalidRequest("give one of messages, prompt and completion", field="messages")
        with self.lock:
            if messages is None:
                text = completion if prompt is None else prompt
                return self.tokenizer(text, add_special_tokens=prompt is not None).input_ids
            if self.tokenizer.chat_template is None:
                raise InvalidRequest("this checkpoint has no chat template; send a raw prompt", field="messages")
            try:
                text = self.tokenizer.apply_chat_template(
                    list(messages), tools=list(tools) if tools else None, tokenize=False, add_generation_prompt=True
                )
            except Exception as error:  # a template is the model maker's program: it may raise whatever it likes
                raise InvalidRequest(f"the chat template refused: {error}", field="messages") from error
            return self.tokenizer(text, add_special_tokens=False).input_ids

    def decode(self, ids: Sequence[int], *, size: int) -> list[TokenText]:
        """`size` is how many tokens the network knows; the tokenizer may know fewer, and says nothing for the rest."""
        for place, token_id in enumerate(ids):
            if not 0 <= token_id < size:
                raise InvalidRequest(f"ids[{place}] is {token_id}; tokens lie in [0, {size})", field="ids")
        stream = self.vocabulary.stream()
        with self.lock:
            return [
                TokenText(text=self.vocabulary.name_of(token_id), is_special=True)
                if token_id in self.vocabulary.special_ids
                else TokenText(text=stream.push(token_id))
                for token_id in ids
            ]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Held:
    """A checkpoint ready to run. Never changed: the next version is another Held."""

    name: CheckpointName
    module: nn.Module
    config: PretrainedConfig
    device: torch.device
    text: Text
    end_ids: frozenset[int]  # tokens that end a completion
    context_limit: int
    manifest: Manifest
    tree_digest: str  # of the network's tensors in memory

    @property
    def vocabulary(self) -> Vocabulary:
        return self.text.vocabulary

    @property
    def dtype(self) -> str:
        return str(next(self.module.parameters()).dtype).removeprefix("torch.")

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.module.parameters())


class Loader:
    """Builds Held checkpoints on one device, sharing tokenizers among versions."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._texts: dict[str, Text] = {}

    def load_full(self, name: CheckpointName, folder: Path) -> Held:
        with refusals(name):
            manifest = verify_folder(folder)
            check_name(manifest, name)
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            return self._build(
                name,
                config,
                read_tensors(folder),
                text=self._text(folder),
                end_ids=end_ids(folder, config),
                manifest=manifest,
            )

    def apply_delta(self, name: CheckpointName, *, base: Held, delta: Path) -> Held:
        """The base keeps serving, and keeps its memory: the child is decoded into memory of its own."""
        with refusals(name):
            published = parse_delta_manifest(delta.with_name(delta.name + ".json").read_bytes())
            check_name(published.manifest, name)
            if other_files(published.manifest) != other_files(base.manifest):
                raise WrongBase("files besides the weights changed: it has to be loaded in full")
            parent = raw_tensors(base.module, base.manifest.tensors)
            tensors = decode_published(parent, delta.read_bytes(), published)
            return self._build(
                name, base.config, tensors, text=base.text, end_ids=base.end_ids, manifest=published.manifest
            )

    def _build(
        self,
        name: CheckpointName,
        config: PretrainedConfig,
        tensors: Mapping[str, Tensor],
        *,
        text: Text,
        end_ids: frozenset[int],
        manifest: Manifest,
    ) -> Held:
        module = build_module(config, {key: torch_tensor(tensor, self.device) for key, tensor in tensors.items()})
        held = tree_digest(tensor_rows(raw_tensors(module, manifest.tensors)))
        if held != manifest.tree_digest:
            raise CorruptCheckpoint(f"memory holds {held[:12]}, the manifest promises {manifest.tree_digest[:12]}")
        return Held(
            name=name,
            module=module,
            config=config,
            device=self.device,
            text=text,
            end_ids=end_ids,
            context_limit=config.max_position_embeddings,
            manifest=manifest,
            tree_digest=held,
        )

    def _text(self, folder: Path) -> Text:
        digest = tokenizer_digest(folder)
        if digest not in self._texts:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            self._texts[digest] = Text(tokenizer, Vocabulary(tokenizer), digest, Lock())
        return self._texts[digest]


@contextmanager
def refusals(name: CheckpointName) -> Iterator[None]:
    """Every reason why files do not become a network, as LoadRefused."""
    try:
        yield
    except (CorruptCheckpoint, OSError, ValueError, KeyError, RuntimeError) as error:
        raise LoadRefused(f"{name} is refused: {error}") from error


def check_name(manifest: Manifest, name: CheckpointName) -> None:
    if (manifest.policy, manifest.version) != (name.policy, name.version):
        raise CorruptCheckpoint(f"the manifest is that of {manifest.policy}@{manifest.version}")


def other_files(manifest: Manifest) -> dict[str, FileRow]:
    """Configuration and tokenizer: whatever a delta of tensors does not carry."""
    return {name: row for name, row in manifest.files.items() if not name.endswith(".safetensors")}


def build_module(config: PretrainedConfig, state: Mapping[str, torch.Tensor]) -> nn.Module:
    """The network of `config` around exactly these tensors. Raises CorruptCheckpoint when they do not fit."""
    # Parameters start without memory and are replaced; buffers that are not saved (rotary frequencies) are computed.
    with init_empty_weights(include_buffers=False):
        module = AutoModelForCausalLM.from_config(config, dtype=next(iter(state.values())).dtype)
    result = module.load_state_dict(state, strict=False, assign=True)
    module.tie_weights()
    missing = [name for name, parameter in module.named_parameters() if parameter.is_meta]
    if missing or result.unexpected_keys:
        raise CorruptCheckpoint(f"tensors missing: {missing[:3]}, not wanted: {result.unexpected_keys[:3]}")
    device = next(iter(state.values())).device
    return module.to(device).eval().requires_grad_(False)


def raw_tensors(module: nn.Module, names: Iterable[str]) -> dict[str, Tensor]:
    """The bytes a network holds under these names; views, not copies, where it lies in CPU memory."""
    state = module.state_dict()
    return {name: raw_tensor(state[name]) for name in names}


def raw_tensor(tensor: torch.Tensor) -> Tensor:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return Tensor(dtype=DTYPE_NAMES[tensor.dtype], shape=tuple(tensor.shape), data=flat.view(torch.uint8).numpy())


def torch_tensor(tensor: Tensor, device: torch.device) -> torch.Tensor:
    """A copy: the bytes may be a mapped file, and nobody else's write may ever reach served weights."""
    if tensor.dtype not in DTYPES:
        raise CorruptCheckpoint(f"dtype {tensor.dtype} cannot be served")
    return torch.from_numpy(tensor.data.copy()).view(DTYPES[tensor.dtype]).reshape(tensor.shape).to(device)


def end_ids(folder: Path, config: PretrainedConfig) -> frozenset[int]:
    """End tokens named by config.json and generation_config.json, whose other settings Strop ignores."""
    return frozenset(all_ends(config.eos_token_id, named_ends(folder / "generation_config.json")))


def tokenizer_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted({path for pattern in TOKENIZER_FILES for path in folder.glob(pattern) if path.is_file()}):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
