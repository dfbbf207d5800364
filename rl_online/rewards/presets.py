"""Named starting points for an update's settings: careful, default, bold, for each loss.

What a preset does not name keeps the value of the learning plan. Torch-free; the numbers are fields of UpdateConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    name: str
    words: str  # what it does, for the page
    settings: Mapping[str, Any]  # overrides of UpdateConfig


DEFAULT = "default"

_PRESETS: dict[str, tuple[Preset, ...]] = {
    "rl": (
        Preset(
            name="careful",
            words="Half the step, half the room for each token to move, ten times the pull to the sampler.",
            settings={"learning_rate": 5e-6, "mask_high": 0.1, "mask_low": 0.1, "behaviour_pull": 1e-2},
        ),
        Preset(name=DEFAULT, words="The learning plan as it is.", settings={}),
        Preset(
            name="bold",
            words="Twice the step and two passes over the batch. The gate holds such an update more often.",
            settings={"learning_rate": 2e-5, "epochs": 2, "mask_high": 0.3, "mask_low": 0.3},
        ),
    ),
    "kto": (
        Preset(
            name="careful",
            words="Half the step and three times the tie to the first checkpoint.",
            settings={"learning_rate": 5e-6, "kto_beta": 0.3},
        ),
        Preset(name=DEFAULT, words="The learning plan as it is.", settings={}),
        Preset(
            name="bold",
            words="Twice the step, half the tie to the first checkpoint. The gate holds such an update more often.",
            settings={"learning_rate": 2e-5, "kto_beta": 0.05},
        ),
    ),
}


def presets(kind: str) -> tuple[Preset, ...]:
    """Those for a loss, `rl` or `kto`."""
    return _PRESETS[kind]


def preset(kind: str, name: str) -> Preset:
    """Raises KeyError for an unknown one."""
    for one in _PRESETS[kind]:
        if one.name == name:
            return one
    raise KeyError(name)
