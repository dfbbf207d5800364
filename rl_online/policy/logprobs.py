"""Log-probabilities of chosen tokens, at the cost of only those tokens' logits.

With a big vocabulary most of the memory and much of the time of a plain forward pass goes to logits nobody looks at.
So the decoder runs over everything, and the output layer only where a trained token is predicted.
"""

# B sequences, T padded length, K selected tokens, H hidden size, V vocabulary

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

PROBE_LENGTH = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRows:
    """Right-padded sequences and which of their tokens to score.

    Example: rows [5, 6, 7] scored at [1, 2] and [8, 9] scored at [1]
        ids_BT = [[5, 6, 7], [8, 9, 0]]   row_K = [0, 0, 1]   position_K = [1, 2, 1]
    """

    ids_BT: Tensor  # int64; what stands in the padding does not matter
    row_K: Tensor  # int64
    position_K: Tensor  # int64, of the scored token itself, so at least 1
    temperature_K: Tensor  # float32; the distribution scored is softmax(logits / temperature)


def pad_rows(
    token_ids: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    *,
    device: torch.device | str = "cpu",
) -> TokenRows:
    """Lay sequences side by side; `positions` are those to score in each, never 0: nothing comes before it."""
    ids_BT = torch.zeros(len(token_ids), max(map(len, token_ids)), dtype=torch.int64)
    for row, ids in enumerate(token_ids):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
    row_K = torch.repeat_interleave(torch.tensor([len(chosen) for chosen in positions]))
    position_K = torch.tensor([position for chosen in positions for position in chosen], dtype=torch.int64)
    temperature_B = torch.tensor(temperatures, dtype=torch.float32)
    return TokenRows(
        ids_BT=ids_BT.to(device),
        row_K=row_K.to(device),
        position_K=position_K.to(device),
        temperature_K=temperature_B[row_K].to(device),
    )


def selected_logprobs(model: PreTrainedModel, rows: TokenRows, *, is_split: bool) -> Tensor:
    """log softmax(logits / temperature) of the selected tokens, float32 [K].

    `is_split` comes from `can_split`. No attention mask is needed: padding is on the right, and a causal model's token
    never sees what comes after it.
    """
    flat_K = rows.row_K * rows.ids_BT.shape[1] + rows.position_K
    if is_split:
        hidden_BTH = model.get_decoder()(input_ids=rows.ids_BT, use_cache=False).last_hidden_state
        logits_KV = model.get_output_embeddings()(hidden_BTH.flatten(0, 1).index_select(0, flat_K - 1))
    else:
        logits_BTV = model(input_ids=rows.ids_BT, use_cache=False).logits
        logits_KV = logits_BTV.flatten(0, 1).index_select(0, flat_K - 1)
    targets_K = rows.ids_BT.flatten()[flat_K]
    scaled_KV = logits_KV.float() / rows.temperature_K.unsqueeze(-1)
    return -torch.nn.functional.cross_entropy(scaled_KV, targets_K, reduction="none")


@torch.no_grad()
def can_split(model: PreTrainedModel) -> bool:
    """Whether the output layer alone turns the decoder's states into this model's logits (no scaling, no soft cap)."""
    decoder, head = model.get_decoder(), model.get_output_embeddings()
    if decoder is None or head is None or decoder is model:
        return False
    ids_BT = torch.arange(PROBE_LENGTH, device=model.device).unsqueeze(0) % model.config.get_text_config().vocab_size
    whole = model(input_ids=ids_BT, use_cache=False).logits
    split = head(decoder(input_ids=ids_BT, use_cache=False).last_hidden_state)
    return whole.shape == split.shape and bool(torch.equal(whole, split))
