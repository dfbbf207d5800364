"""Log-probabilities of samples under a network, in forward passes of bounded size."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.policy.load import choose_device, load_policy
from rl_online.policy.logprobs import can_pack, can_split, pack_rows, pad_rows, selected_logprobs
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate, DoesNotFit
from rl_online.training.memory import is_out_of_memory
from rl_online.training.microbatch import in_given_order, micro_batches, packed_batches, padding_share, units
from rl_online.training.samples import Stream, TrainingSample
from rl_online.weights.manifest import verify_folder

log = logging.getLogger("updater")

MAX_EAGER_LENGTH = 256  # eager attention keeps length^2 scores per head and layer

T = TypeVar("T")
Scorer = Callable[[Sequence[TrainingSample]], list[list[float]]]


@dataclass(kw_only=True, slots=True)
class Layout:
    """How samples are cut into forward passes through one model. Grows finer when memory runs out, and stays so."""

    is_split: bool  # the output layer runs over trained tokens only
    is_packed: bool
    max_tokens: int  # of one pass, padding included

    @classmethod
    def of(cls, model: PreTrainedModel, config: UpdateConfig) -> "Layout":
        """Raises ContradictoryUpdate where the config asks for packing and the model cannot."""
        if config.packing and not can_pack(model):
            raise ContradictoryUpdate(
                f"packing is on, but {type(model).__name__} mixes sequences of one row; switch it off"
            )
        return cls(is_split=can_split(model), is_packed=config.packing, max_tokens=config.micro_batch_tokens)

    def groups(self, samples: Sequence[TrainingSample]) -> list[list[int]]:
        """Indices of the samples of each pass."""
        return (packed_batches if self.is_packed else micro_batches)(samples, self.max_tokens)

    def padding(self, samples: Sequence[TrainingSample]) -> tuple[float, float]:
        """Share of computed places without a token: as laid out, and had the samples been taken in their order."""
        groups = self.groups(samples)
        return (
            0.0 if self.is_packed else padding_share(samples, groups),
            padding_share(samples, in_given_order(samples, self.max_tokens)),
        )

    def fit(self, samples: Sequence[TrainingSample], work: Callable[[], T]) -> T:
        """Do `work`, again with passes of half the size whenever one does not fit. Raises DoesNotFit."""
        while True:
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                said = str(error)
            self._halve(samples, said)  # out here: while an exception is handled, its frames hold their tensors

    def _halve(self, samples: Sequence[TrainingSample], said: str) -> None:
        groups = self.groups(samples)
        if len(groups) == len(units(samples)):
            raise DoesNotFit(f"memory ran out with one sample at a time, of up to {self.max_tokens} tokens: {said}")
        largest = max(sum(len(samples[index]) for index in group) for group in groups)
        self.max_tokens = min(self.max_tokens, largest) // 2
        log.warning("memory ran out: passes of at most %d tokens from now on", self.max_tokens)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def passes(
    model: PreTrainedModel, samples: Sequence[TrainingSample], layout: Layout
) -> Iterator[tuple[list[int], Tensor]]:
    """Per forward pass: the indices of its samples, and the log-probabilities of their trained tokens in a row."""
    lay = pack_rows if layout.is_packed else pad_rows
    for group in layout.groups(samples):
        lengths = [len(samples[index]) for index in group]
        choose_attention(model, max_length=sum(lengths) if layout.is_packed else max(lengths))
        rows = lay(
            [samples[index].token_ids for index in group],
            [samples[index].positions for index in group],
            [samples[index].temperature for index in group],
            device=model.device,
        )
        yield group, selected_logprobs(model, rows, is_split=layout.is_split)


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
def score_samples(model: PreTrainedModel, samples: Sequence[TrainingSample], layout: Layout) -> list[list[float]]:
    """Of each sample's trained tokens, without gradient."""

    def score() -> list[list[float]]:
        found: list[list[float]] = [[] for _ in samples]
        for group, logp_K in passes(model, samples, layout):
            for index, values in zip(group, by_sample(logp_K, [samples[i] for i in group]), strict=True):
                found[index] = values
        return found

    return layout.fit(samples, score)


def base_scorer(
    folder: Path | None, config: UpdateConfig, samples: Sequence[TrainingSample], *, device: str
) -> Scorer | None:
    """Scores under the base in `folder` when something needs it; None leaves the parent as the reference."""
    needs_base = config.base_kl > 0 or any(Stream.PREF in sample.weights for sample in samples)
    if folder is None or not needs_base:
        return None
    verify_folder(folder)
    return frozen_scorer(folder, config, device=device)


def frozen_scorer(folder: Path, config: UpdateConfig, *, device: str) -> Scorer:
    """Scores under the checkpoint in `folder`, which is in memory only during each call."""

    def score(samples: Sequence[TrainingSample]) -> list[list[float]]:
        model = load_policy(folder, device=choose_device(device))
        return score_samples(model, samples, Layout.of(model, config))

    return score
