"""The seam between what an update does and where the weights live.

`apply_update` drives these verbs; LocalTrainer does them in this process. A remote trainer would take the same calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rl_online.training.objective import Objective
from rl_online.training.samples import TrainingSample


@dataclass(frozen=True, kw_only=True, slots=True)
class ForwardBackward:
    """What one call of forward_backward saw."""

    losses: dict[str, float]  # by term; their sum is the loss
    logprobs: list[list[float]]  # of each sample's trained tokens, before the step
    num_passes: int  # micro-batches it took
    padding_share: float  # of the places computed: those without a token
    padding_share_unsorted: float  # what it would have been with the samples in their order


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """What became of one optimizer step."""

    is_applied: bool  # False when the gradient was discarded or not finite; the weights are then untouched
    grad_norm: float  # global L2 norm before clipping


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """One completion drawn from the weights as they are now."""

    token_ids: list[int]  # the sampled end token included
    logprobs: list[float]


class Trainer(Protocol):
    """Weights with an optimizer. Gradients add up over forward_backward calls until optim_step uses or drops them."""

    @property
    def optimizer_step(self) -> int:
        """Steps applied along the lineage."""

    def forward_backward(self, samples: Sequence[TrainingSample], objective: Objective) -> ForwardBackward:
        """Add the objective's gradient over `samples`."""

    def optim_step(self, *, discard: bool = False, lr_scale: float = 1.0) -> StepReport:
        """Clip and apply the gradient at `lr_scale` times the learning rate, then clear it.

        A gradient that is not finite is never applied.
        """

    def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Log-probabilities of each sample's trained tokens, without gradient."""

    def divergences(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Of each taught sample's trained tokens from its teacher, without gradient; none for one not taught."""

    def sample(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float) -> list[Sampled]:
        """One completion per prompt; greedy at temperature 0."""

    def save_weights(self, folder: Path) -> dict[str, float]:
        """Write a Hugging Face folder into the empty `folder`; numbers about what was written, such as what it lost."""

    def save_state(self, folder: Path) -> None:
        """Write optimizer and random state into the empty `folder`."""

    def save_snapshot(self, folder: Path) -> None:
        """Write all that is needed to go on in the middle of an update into the empty `folder`, to the bit."""

    def load_snapshot(self, folder: Path) -> None:
        """Go on from what `save_snapshot` wrote."""
