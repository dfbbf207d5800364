"""The knobs of one update, in one place: what the page shows is what the trainer used.

Torch-free, so that the console can show and validate it. Formulas and sources: docs/algorithms.md.
"""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

BASE_KL_ESTIMATORS = ("k2", "ratio_k3")  # never bare k1 or k3: their gradients are not the KL's


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateConfig:
    """Effective configuration of one update; the defaults are the recipe measured in docs/algorithms.md."""

    learning_rate: float = 1e-5  # AdamW, constant over the update
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0  # global L2 norm the gradient is scaled down to
    minibatch_size: int = 64  # samples per optimizer step
    epochs: int = 1  # passes over the batch
    micro_batch_tokens: int = 1024  # padded tokens per forward pass; bounds memory, does not change the loss

    mask_high: float = 0.2  # DPPO: drop a good token once its probability rose by more than this
    mask_low: float = 0.2  # DPPO: drop a bad token once its probability fell by more than this
    behaviour_pull: float = 1e-3  # coefficient of (logp - behaviour)^2
    base_kl: float = 0.0  # coefficient of the KL to the base; 0 leaves the base unloaded
    base_kl_estimator: str = "ratio_k3"  # k2 or ratio_k3

    kto_weight: float = 1.0  # weight of the KTO term; 0 drops samples without logprobs
    kto_beta: float = 0.1
    kto_desirable: float = 1.0
    kto_undesirable: float = 1.0
    ce_weight: float = 1.0  # weight of cross-entropy on demonstrations and edits; 0 drops them

    max_lag: int = 4  # updates between sampler and trained weights; older samples are dropped and counted
    min_ess: float = 0.3  # a minibatch whose effective sample share is lower is skipped and counted
    heldout_samples: int = 16  # set aside at sealing and only measured; never more than one turn in twenty

    def __post_init__(self) -> None:
        """Raises ValueError naming the field and what would be right."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float | int) and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} is {value}; it must be a finite number of at least 0")
        for name in ("learning_rate", "adam_epsilon", "grad_clip", "minibatch_size", "epochs", "micro_batch_tokens"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in ("adam_beta1", "adam_beta2", "min_ess"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be below 1")
        if self.base_kl_estimator not in BASE_KL_ESTIMATORS:
            raise ValueError(f"base_kl_estimator is {self.base_kl_estimator!r}; choose from {BASE_KL_ESTIMATORS}")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "UpdateConfig":
        """Missing fields take their default. Raises ValueError for an unknown field, a wrong type or a bad value."""
        types: dict[str, type] = {name: type(value) for name, value in cls().to_json().items()}
        for name, value in values.items():
            if name not in types:
                raise ValueError(f"{name} is not a setting of an update; known are {', '.join(sorted(types))}")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            fits = {str: isinstance(value, str), int: is_number and float(value).is_integer(), float: is_number}
            if not fits[types[name]]:
                raise ValueError(f"{name} is {value!r}; it must be {types[name].__name__}")
        return cls(**{name: types[name](value) for name, value in values.items()})

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON: two updates with equal digests used the same settings."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
