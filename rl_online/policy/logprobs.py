"""Log-probabilities of chosen tokens, at the cost of only those tokens' logits.

With a big vocabulary most of the memory and much of the time of a plain forward pass goes to logits nobody looks at.
So the decoder runs over everything, and the output layer only where a trained token is predicted.
"""

# B rows (of one sequence each, or packed), T their length, K selected tokens, H hidden size, V vocabulary

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

PROBE_LENGTH = 4
PACKED_TOLERANCE = {torch.float32: 1e-4}  # of a logit; attention adds in another order when packed
ROUGH_TOLERANCE = 0.1  # in 16 bits


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRows:
    """Right-padded or packed sequences and which of their tokens to score.

    Example: rows [5, 6, 7] scored at [1, 2] and [8, 9] scored at [1]
        padded: ids_BT = [[5, 6, 7], [8, 9, 0]]   row_K = [0, 0, 1]   position_K = [1, 2, 1]
        packed: ids_BT = [[5, 6, 7, 8, 9]]        row_K = [0, 0, 0]   position_K = [1, 2, 4]
                place_BT = [[0, 1, 2, 0, 1]]
    """

    ids_BT: Tensor  # int64; what stands in the padding does not matter
    row_K: Tensor  # int64
    position_K: Tensor  # int64, of the scored token itself, so at least 1
    temperature_K: Tensor  # float32; the distribution scored is softmax(logits / temperature)
    place_BT: Tensor | None = None  # int64, of each token in its own sequence; None: one sequence a row


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


def pack_rows(
    token_ids: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    *,
    device: torch.device | str = "cpu",
) -> TokenRows:
    """Lay sequences one after the other in a single row. Only for a model that `can_pack`: no token sees another
    sequence's, because the places start again at 0 with each.
    """
    starts = list(itertools.accumulate((len(ids) for ids in token_ids), initial=0))
    position_K = [start + position for start, chosen in zip(starts, positions, strict=False) for position in chosen]
    temperature_K = [value for value, chosen in zip(temperatures, positions, strict=True) for _ in chosen]
    return TokenRows(
        ids_BT=torch.tensor([[token for ids in token_ids for token in ids]], device=device),
        row_K=torch.zeros(len(position_K), dtype=torch.int64, device=device),
        position_K=torch.tensor(position_K, dtype=torch.int64, device=device),
        temperature_K=torch.tensor(temperature_K, dtype=torch.float32, device=device),
        place_BT=torch.tensor([[place for ids in token_ids for place in range(len(ids))]], device=device),
    )


def selected_logprobs(model: PreTrainedModel, rows: TokenRows, *, is_split: bool) -> Tensor:
    """log softmax(logits / temperature) of the selected tokens, float32 [K]; `is_split` comes from `can_split`."""
    return logprobs_from(selected_logits(model, rows, is_split=is_split), rows)


def logprobs_from(logits_KV: Tensor, rows: TokenRows) -> Tensor:
    """log softmax(logits / temperature) of the selected tokens, from their `selected_logits`."""
    targets_K = rows.ids_BT.flatten()[rows.row_K * rows.ids_BT.shape[1] + rows.position_K]
    logits_KV = logits_KV / rows.temperature_K.unsqueeze(-1)  # in its place: two such tensors at once cost too much
    return -torch.nn.functional.cross_entropy(logits_KV, targets_K, reduction="none")


def selected_logits(model: PreTrainedModel, rows: TokenRows, *, is_split: bool) -> Tensor:
    """Of each selected token the logits of all that could have stood there, float32 [K, V], at temperature 1.

    `is_split` comes from `can_split`. No attention mask is needed: padding is on the right, and a causal model's token
    never sees what comes after it.
    """
    return run_whole(model, lambda: _selected_logits(model, rows, is_split=is_split))


def run_whole(model: PreTrainedModel, work: Callable[[], Tensor]) -> Tensor:
    """`work`, which calls parts of the model, with all weights at hand: a model whose weights are spread over processes
    has a method of this name that gathers them meanwhile.
    """
    run: Callable[[Callable[[], Tensor]], Tensor] | None = getattr(model, "run_whole", None)
    return work() if run is None else run(work)


def _selected_logits(model: PreTrainedModel, rows: TokenRows, *, is_split: bool) -> Tensor:
    inputs = {"input_ids": rows.ids_BT} | ({} if rows.place_BT is None else {"position_ids": rows.place_BT})
    flat_K = rows.row_K * rows.ids_BT.shape[1] + rows.position_K
    if is_split:
        hidden_BTH = model.get_decoder()(**inputs, use_cache=False).last_hidden_state
        logits_KV = model.get_output_embeddings()(hidden_BTH.flatten(0, 1).index_select(0, flat_K - 1))
    else:
        logits_BTV = model(**inputs, use_cache=False).logits
        logits_KV = logits_BTV.flatten(0, 1).index_select(0, flat_K - 1)
    return logits_KV.float()


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


@torch.no_grad()
def can_pack(model: PreTrainedModel) -> bool:
    """Whether a sequence's logits stay the same behind another in one row: attention that heeds places, and no state
    that runs on from one sequence into the next.
    """
    num_ids = model.config.get_text_config().vocab_size
    first, second = ([start + step for step in range(PROBE_LENGTH)] for start in (PROBE_LENGTH, 0))
    together = pack_rows(
        [[one % num_ids for one in ids] for ids in (first, second)], [[], []], [1.0, 1.0], device=model.device
    )
    alone = model(input_ids=together.ids_BT[:, PROBE_LENGTH:], use_cache=False).logits
    try:
        packed = model(input_ids=together.ids_BT, position_ids=together.place_BT, use_cache=False).logits
    except TypeError:  # it knows no places
        return False
    gap = (packed[:, PROBE_LENGTH:] - alone).abs().max()
    return bool(gap <= PACKED_TOLERANCE.get(model.dtype, ROUGH_TOLERANCE))
