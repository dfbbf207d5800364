"""Keys and values of a batch of sequences of different lengths, and the one call that runs the network on them.

Rows are padded on the left to one width, so their newest tokens align. This is the only module that knows how
transformers takes and returns a cache. Not here: which rows there are and why (serving.decoding).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

# B rows, T positions of the widest row, S new positions, V vocabulary, H heads, D head size

ROOM = 64  # positions allocated beyond those needed now


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer with room to grow: appending a token copies that token, not all those before it."""

    def __init__(self) -> None:
        super().__init__()
        self._room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if self._room is None or end > self._room[0].shape[2]:
            self._room = self._larger(key_states, end + ROOM), self._larger(value_states, end + ROOM)
            if self.keys is not None and self.values is not None:
                self._room[0][:, :, :start], self._room[1][:, :, :start] = self.keys, self.values
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start:end] = new
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        self.is_initialized = True
        return self.keys, self.values

    def _larger(self, like_BHTD: Tensor, length: int) -> Tensor:
        return like_BHTD.new_empty(*like_BHTD.shape[:2], length, like_BHTD.shape[3])


def new_cache(layers: Iterable[Sequence[Tensor]] = ()) -> Cache:
    """A cache of growing layers, empty or holding these keys and values."""
    cache = Cache(layer_class_to_replicate=GrowingLayer)
    for index, (keys, values) in enumerate(layers):
        cache.update(keys, values, index)
    return cache


@dataclass(slots=True)
class Rows:
    """`lengths[b]` positions of row b are real, the last ones; those before are padding."""

    cache: Cache
    lengths: list[int]

    @property
    def width(self) -> int:
        return self.cache.get_seq_length()


def prefill(module: nn.Module, prompts: list[list[int]], *, device: torch.device) -> tuple[Tensor, Rows]:
    """Logits [B, V] after the last token of each prompt, and the rows to go on with."""
    width = max(map(len, prompts))
    # The padding id is masked out by length; any id in the vocabulary does.
    ids_BS = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts], device=device)
    rows = Rows(new_cache(), [len(prompt) for prompt in prompts])
    return forward(module, ids_BS, rows, width=width), rows


def decode(module: nn.Module, last_ids: list[int], rows: Rows, *, device: torch.device) -> Tensor:
    """Logits [B, V] after appending one token to each row; `rows` grows by it."""
    ids_BS = torch.tensor(last_ids, device=device).unsqueeze(1)
    width = rows.width + 1
    rows.lengths = [length + 1 for length in rows.lengths]
    return forward(module, ids_BS, rows, width=width)


@torch.inference_mode()
def forward(module: nn.Module, ids_BS: Tensor, rows: Rows, *, width: int) -> Tensor:
    """Runs the new ids, `rows.lengths` already counting them; logits of the last position only."""
    positions_T = torch.arange(width, device=ids_BS.device)
    padding_B1 = torch.tensor([[width - length] for length in rows.lengths], device=ids_BS.device)
    mask_BT = (positions_T >= padding_B1).long()
    positions_BS = (positions_T[width - ids_BS.shape[1] :] - padding_B1).clamp(min=0)
    kept: dict[str, Any] = {cache_argument(type(module).forward): rows.cache}
    # An index copies the last positions together. A slice stays strided, and a linear layer on strided rows, whose
    # weight needs no gradient, goes through bmm with a copy of the whole vocabulary matrix for every row.
    last_1 = torch.tensor([ids_BS.shape[1] - 1], device=ids_BS.device)
    output = module(
        input_ids=ids_BS,
        attention_mask=mask_BT,
        position_ids=positions_BS,
        use_cache=True,
        logits_to_keep=last_1,
        **kept,
    )
    return output.logits[:, -1]


@cache
def cache_argument(forward: Any) -> str:
    """transformers renames `past_key_values` to `cache`, model by model."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


@torch.inference_mode()
def select(rows: Rows, kept: list[int]) -> Rows:
    """The kept rows, each as often as named, without the leading positions that are padding in all of them."""
    lengths = [rows.lengths[row] for row in kept]
    start = rows.width - max(lengths)
    layers = [tuple(x_BHTD[:, :, start:][kept] for x_BHTD in layer) for layer in keys_values(rows.cache)]
    return Rows(new_cache(layers), lengths)


@torch.inference_mode()
def join(first: Rows, second: Rows) -> Rows:
    """The rows of both, padded on the left to the wider one."""
    width = max(first.width, second.width)
    pairs = zip(keys_values(first.cache), keys_values(second.cache), strict=True)
    layers = [tuple(stack(a, b, width=width) for a, b in zip(*pair, strict=True)) for pair in pairs]
    return Rows(new_cache(layers), first.lengths + second.lengths)


def stack(a_BHTD: Tensor, b_BHTD: Tensor, *, width: int) -> Tensor:
    return torch.cat([nn.functional.pad(x, (0, 0, width - x.shape[2], 0)) for x in (a_BHTD, b_BHTD)])


def keys_values(cache: Any) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of each layer."""
    return [(layer.keys, layer.values) for layer in cache.layers]
