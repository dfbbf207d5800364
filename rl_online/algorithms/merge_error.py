"""What a small change loses when it is merged into weights of low precision.

A bfloat16 weight has 8 bits: a change below half its last one vanishes, one above becomes a whole. So an adapter is
served unmerged, or merged with this error told beside it.
"""

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


@torch.no_grad()
def measure_merge(base: Tensor, wanted: Tensor) -> MergeError:
    """Of `base + wanted`, summed in float32 and rounded to the dtype of `base`; neither is changed."""
    realised = (base.float() + wanted.float()).to(base.dtype).float() - base.float()
    norm = float(wanted.float().norm())
    return MergeError(
        moved_share=float((realised != 0).float().mean()),
        relative_error=float((realised - wanted.float()).norm()) / norm if norm else 0.0,
    )
