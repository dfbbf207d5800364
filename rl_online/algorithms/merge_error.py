"""What a small change loses when it is merged into weights of low precision.

A bfloat16 weight has 8 bits: a change below half its last one vanishes, one above becomes a whole. So an adapter is
served unmerged, or merged with this error told beside it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeError:
    """How much of a change arrived."""

    moved_share: float  # of entries whose stored value changed at all
    relative_error: (
        float  # norm of (realised change - wanted change) over norm of the wanted one; 0 when none is wanted
    )


def measure_merge(base: Tensor, wanted: Tensor) -> MergeError:
    """Of `base + wanted`, summed in float32 and rounded to the dtype of `base`; neither is changed."""
    return measure_merges([(base, wanted)])


@torch.no_grad()
def measure_merges(pairs: Iterable[tuple[Tensor, Tensor]]) -> MergeError:
    """The same of several pairs (base, wanted), as if each side were one long tensor."""
    moved = count = wanted_square = lost_square = 0.0
    for base, wanted in pairs:
        realised = (base.float() + wanted.float()).to(base.dtype).float() - base.float()
        moved += float((realised != 0).sum())
        count += base.numel()
        wanted_square += float(wanted.double().square().sum())
        lost_square += float((realised - wanted.float()).double().square().sum())
    return MergeError(
        moved_share=moved / count if count else 0.0,
        relative_error=math.sqrt(lost_square / wanted_square) if wanted_square else 0.0,
    )
