"""How far the network in training is from its teacher, at each token of a forward pass that the teacher has a word on.

The teacher is a frozen network in a folder, or the one in training itself with a hint in its prompt, without gradient.
It is asked pass by pass, so no more than one pass's logits are ever in memory. One behind an address was asked before.
"""

# K trained tokens of one pass, of its taught samples alone; V vocabulary, J tokens the teacher named

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.algorithms.gkd import divergences, kl_top_and_tail
from rl_online.policy.logprobs import pad_rows, selected_logits
from rl_online.training.samples import TrainingSample


@dataclass(frozen=True, kw_only=True, slots=True)
class Teacher:
    """Whom to ask, and which way to measure. Compared at temperature 1, however an answer was drawn."""

    model: PreTrainedModel
    is_split: bool  # of that model, see `policy.logprobs.can_split`
    beta: float  # of `algorithms.gkd.divergences`

    @torch.no_grad()
    def logits(self, samples: Sequence[TrainingSample]) -> Tensor:
        """[K, V] of the tokens of those samples that it is to be asked about, one at least."""
        asked = [one.teaching for one in samples if one.teaching is not None and one.teaching.top is None]
        rows = pad_rows(
            [one.reads for one in asked],
            [one.places for one in asked],
            [1.0] * len(asked),
            device=self.model.device,
        )
        return selected_logits(self.model, rows, is_split=self.is_split)

    def divergence(self, student_KV: Tensor, samples: Sequence[TrainingSample], teacher_KV: Tensor | None) -> Tensor:
        """Of each token of the taught `samples`, in nats; `teacher_KV` is what `logits` said of them."""
        if teacher_KV is not None:
            return divergences(student_KV, teacher_KV, beta=self.beta)
        named = [row for one in samples if one.teaching is not None for row in one.teaching.top or []]
        return kl_top_and_tail(student_KV, *_top(named, student_KV.device))


def _top(named: Sequence[Sequence[tuple[int, float]]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(ids, log-probabilities) [K, J]; where fewer than J were named, id 0 at -inf."""
    longest = max(len(row) for row in named)
    ids = [[token for token, _ in row] + [0] * (longest - len(row)) for row in named]
    logp = [[value for _, value in row] + [-torch.inf] * (longest - len(row)) for row in named]
    return torch.tensor(ids, device=device), torch.tensor(logp, dtype=torch.float32, device=device)
