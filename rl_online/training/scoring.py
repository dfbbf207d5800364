"""Log-probabilities of samples under a network, in forward passes of bounded size."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.policy.load import choose_device, load_policy
from rl_online.policy.logprobs import (
    can_pack,
    can_split,
    logprobs_from,
    pack_rows,
    pad_rows,
    selected_logits,
    selected_logprobs,
)
from rl_online.policy.vocabulary import vocabulary_of
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate, DoesNotFit
from rl_online.training.memory import is_out_of_memory
from rl_online.training.microbatch import in_given_order, micro_batches, packed_batches, padding_share, units
from rl_online.training.refusals import refuse_vocabulary
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.teacher import Teacher
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
            self.halve(samples, said)  # out here: while an exception is handled, its frames hold their tensors

    def halve(self, samples: Sequence[TrainingSample], said: str) -> None:
        """Make passes smaller than the largest was. Raises DoesNotFit where each has one unit already."""
        groups = self.groups(samples)
        if len(groups) == len(units(samples)):
            raise DoesNotFit(f"memory ran out with one sample at a time, of up to {self.max_tokens} tokens: {said}")
        largest = max(sum(len(samples[index]) for index in group) for group in groups)
        self.max_tokens = min(self.max_tokens, largest) // 2
        log.warning("memory ran out: passes of at most %d tokens from now on", self.max_tokens)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """One forward pass through the network in training."""

    indices: list[int]  # of its samples
    logp_K: Tensor  # log-probabilities of their trained tokens in a row
    divergence_K: Tensor | None  # of those of its taught samples alone, from their teacher; None where nobody is taught


def passes(
    model: PreTrainedModel, samples: Sequence[TrainingSample], layout: Layout, *, teacher: Teacher | None = None
) -> Iterator[Pass]:
    """Over all samples, in groups as laid out; without a `teacher` no divergence is measured."""
    for indices in layout.groups(samples):
        yield one_pass(model, indices, samples, layout, teacher=teacher)


def one_pass(
    model: PreTrainedModel,
    indices: list[int],
    samples: Sequence[TrainingSample],
    layout: Layout,
    *,
    teacher: Teacher | None = None,
) -> Pass:
    """Over the samples at `indices`."""
    members = [samples[index] for index in indices]
    # Before the student: layers computed again in its backward pass must find the attention of its forward pass.
    teacher_KV = None if teacher is None else _ask(teacher, members)
    lay = pack_rows if layout.is_packed else pad_rows
    lengths = list(map(len, members))
    choose_attention(model, max_length=sum(lengths) if layout.is_packed else max(lengths))
    rows = lay(
        [sample.token_ids for sample in members],
        [sample.positions for sample in members],
        [sample.temperature for sample in members],
        device=model.device,
    )
    if teacher is None or all(sample.teaching is None for sample in members):
        logp_K = selected_logprobs(model, rows, is_split=layout.is_split)
        return Pass(indices=indices, logp_K=logp_K, divergence_K=None)
    logits_KV = selected_logits(model, rows, is_split=layout.is_split)
    is_taught = [sample.teaching is not None for sample in members for _ in sample.positions]
    divergence_K = teacher.divergence(logits_KV if all(is_taught) else logits_KV[is_taught], members, teacher_KV)
    return Pass(indices=indices, logp_K=logprobs_from(logits_KV, rows), divergence_K=divergence_K)


def _ask(teacher: Teacher, members: Sequence[TrainingSample]) -> Tensor | None:
    """Its logits at the taught tokens; None where nobody is taught, or it has said all before."""
    lengths = [len(one.teaching.reads) for one in members if one.teaching is not None and one.teaching.top is None]
    if not lengths:
        return None
    choose_attention(teacher.model, max_length=max(lengths))
    return teacher.logits(members)


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
        for one in passes(model, samples, layout):
            for index, values in zip(
                one.indices, by_sample(one.logp_K, [samples[i] for i in one.indices]), strict=True
            ):
                found[index] = values
        return found

    return layout.fit(samples, score)


@torch.no_grad()
def score_divergences(
    model: PreTrainedModel, samples: Sequence[TrainingSample], layout: Layout, teacher: Teacher
) -> list[list[float]]:
    """Of each taught sample's trained tokens, without gradient; an empty list for one that is not taught."""

    def score() -> list[list[float]]:
        found: list[list[float]] = [[] for _ in samples]
        for one in passes(model, samples, layout, teacher=teacher):
            taught = [index for index in one.indices if samples[index].teaching is not None]
            if one.divergence_K is not None:
                parts = by_sample(one.divergence_K, [samples[index] for index in taught])
                for index, values in zip(taught, parts, strict=True):
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


def teacher_folder(folders: Mapping[str, Path], policy: Path) -> Path | None:
    """The folder of the teacher among an update's, verified; None where it has none.

    Raises CorruptCheckpoint, or ContradictoryUpdate where it does not share the vocabulary of the policy's checkpoint.
    """
    folder = folders.get("teacher")
    if folder is not None:
        verify_folder(folder)
        refuse_vocabulary(vocabulary_of(folder), vocabulary_of(policy))
    return folder


def frozen_scorer(folder: Path, config: UpdateConfig, *, device: str) -> Scorer:
    """Scores under the checkpoint in `folder`, which is in memory only during each call."""

    def score(samples: Sequence[TrainingSample]) -> list[list[float]]:
        model = load_policy(folder, device=choose_device(device))
        return score_samples(model, samples, Layout.of(model, config))

    return score
