"""Log-probabilities of samples under a network, in forward passes of bounded size."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.policy.load import choose_device, load_policy
from rl_online.policy.logprobs import can_split, pad_rows, selected_logprobs
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.microbatch import micro_batches
from rl_online.training.samples import Stream, TrainingSample
from rl_online.weights.manifest import verify_folder

MAX_EAGER_LENGTH = 256  # eager attention keeps length^2 scores per head and layer

Scorer = Callable[[Sequence[TrainingSample]], list[list[float]]]


def passes(
    model: PreTrainedModel, samples: Sequence[TrainingSample], *, is_split: bool, max_tokens: int
) -> Iterator[tuple[list[int], Tensor]]:
    """Per forward pass: the indices of its samples, and the log-probabilities of their trained tokens in a row."""
    for group in micro_batches(samples, max_tokens):
        choose_attention(model, max_length=len(samples[group[0]].token_ids))
        rows = pad_rows(
            [samples[index].token_ids for index in group],
            [samples[index].positions for index in group],
            [samples[index].temperature for index in group],
            device=model.device,
        )
        yield group, selected_logprobs(model, rows, is_split=is_split)


def choose_attention(model: PreTrainedModel, *, max_length: int) -> None:
    """Fused attention is slow in its backward pass on a CPU: short sequences do without, long ones need its memory."""
    is_short = model.device.type == "cpu" and max_length <= MAX_EAGER_LENGTH
    wanted = "eager" if is_short else "sdpa"
    if model.config._attn_implementation != wanted:
        model.set_attn_implementation(wanted)


def by_sample(logp_K: Tensor, samples: Sequence[TrainingSample]) -> list[list[float]]:
    parts = logp_K.detach().cpu().split([len(sample.positions) for sample in samples])
    return [part.tolist() for part in parts]


@torch.no_grad()
def score_samples(
    model: PreTrainedModel, samples: Sequence[TrainingSample], *, is_split: bool, max_tokens: int
) -> list[list[float]]:
    """Of each sample's trained tokens, without gradient."""
    found: list[list[float]] = [[] for _ in samples]
    for group, logp_K in passes(model, samples, is_split=is_split, max_tokens=max_tokens):
        for index, values in zip(group, by_sample(logp_K, [samples[i] for i in group]), strict=True):
            found[index] = values
    return found


def base_scorer(
    folder: Path | None, config: UpdateConfig, samples: Sequence[TrainingSample], *, device: str
) -> Scorer | None:
    """Scores under the base in `folder` when something needs it; None leaves the parent as the reference."""
    needs_base = config.base_kl > 0 or any(sample.stream is Stream.KTO for sample in samples)
    if folder is None or not needs_base:
        return None
    verify_folder(folder)
    return frozen_scorer(folder, device=device, max_tokens=config.micro_batch_tokens)


def frozen_scorer(folder: Path, *, device: str, max_tokens: int) -> Scorer:
    """Scores under the checkpoint in `folder`, which is in memory only during each call."""

    def score(samples: Sequence[TrainingSample]) -> list[list[float]]:
        model = load_policy(folder, device=choose_device(device))
        return score_samples(model, samples, is_split=can_split(model), max_tokens=max_tokens)

    return score
