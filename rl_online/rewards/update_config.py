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
SCHEDULES = ("constant", "cosine")
OPTIMIZERS = ("adamw", "adamw8bit", "muon")
ADVANTAGES = ("baseline", "grpo", "dr_grpo", "rloo", "reinforce_plus_plus")
LOSS_NORMS = ("tokens", "sequences", "constant")
DISTILL_ESTIMATORS = ("logits", "top_k", "sampled")
SINGLE_LOSSES = ("kto", "apo_zero")  # preference losses that take answers one by one
PREF_LOSSES = (*SINGLE_LOSSES, "dpo", "ipo", "cdpo", "robust_dpo")
# Of each loss on rewards, the corrections for data of an older policy that it can carry, the first is customary.
# reinforce takes its ratio to the sampler and decoupled weighs by it: a second weight would count the mismatch twice.
CORRECTIONS = {
    "reinforce": ("dppo", "one_sided", "opsm", "none"),
    "ppo_clip": ("tis", "icepop", "opsm", "none"),
    "dapo": ("tis", "icepop", "opsm", "none"),
    "cispo": ("tis", "icepop", "opsm", "none"),
    "gspo": ("opsm", "none"),
    "rloo": ("opsm", "none"),
    "decoupled": ("opsm", "none"),
    "dro": ("none",),
}
# What has no bound on how far a stale sample may push. decoupled weighs by the ratio, dro is a regression for any age.
NEEDS_CORRECTION = ("reinforce", "ppo_clip", "dapo", "cispo", "gspo", "rloo")

ABOVE_0 = ("learning_rate", "adam_epsilon", "grad_clip", "minibatch_size", "epochs", "micro_batch_tokens",
           "dpo_beta", "tis_cap", "ratio_cap", "lora_alpha", "heldout_share", "ppo_iterations", "ppo_prompts",
           "ppo_watched", "ppo_max_new_tokens", "ppo_temperature", "value_learning_rate", "heldout_every")  # fmt: skip
VALUE_INITS = ("reward_model", "fresh")
SEQUENCE_MASKS = ("none", "mean_ratio", "root_length")
SEQUENCE_LOSSES = ("gspo", "rloo")  # one ratio for each answer, divided by the number of answers


def _later(default: Any) -> Any:
    """A setting that came after the first updates were stored: at its default it is not in their digest either."""
    return dataclasses.field(default=default, metadata={"is_later": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateConfig:
    """Effective configuration of one update; the defaults are the recipe measured in docs/algorithms.md."""

    learning_rate: float = 1e-5  # AdamW, of the steps after the warm-up
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0  # global L2 norm the gradient is scaled down to
    minibatch_size: int = 64  # samples per optimizer step
    epochs: int = 1  # passes over the batch
    micro_batch_tokens: int = 1024  # padded tokens per forward pass; bounds memory, does not change the loss

    mask_high: float = 0.2  # DPPO: drop a good token once its probability rose by more than this
    mask_low: float = 0.2  # DPPO: drop a bad token once its probability fell by more than this; one_sided: any token
    behaviour_pull: float = 1e-3  # reinforce: coefficient of (logp - behaviour)^2
    base_kl: float = 0.0  # coefficient of the KL to the base; 0 leaves the base unloaded
    base_kl_estimator: str = "ratio_k3"  # k2 or ratio_k3

    kto_weight: float = 1.0  # weight of the preference term; 0 drops samples without logprobs
    kto_beta: float = 0.1
    kto_desirable: float = 1.0
    kto_undesirable: float = 1.0
    ce_weight: float = 1.0  # weight of cross-entropy on demonstrations and edits; 0 drops them

    max_lag: int = 4  # updates between sampler and trained weights; older samples are dropped and counted
    min_ess: float = 0.3  # a minibatch whose effective sample share is lower is skipped and counted
    heldout_samples: int = 16  # set aside at sealing and only measured; never more than one turn in twenty

    policy_loss: str = _later("reinforce")  # reinforce, ppo_clip, dapo, cispo, gspo, rloo, decoupled or dro
    correction: str = _later("dppo")  # for data of an older policy: none, dppo, one_sided, tis, icepop, opsm
    advantage: str = _later("baseline")  # baseline (as sealed), or by group: grpo, dr_grpo, rloo, reinforce_plus_plus
    loss_norm: str = _later("tokens")  # rl is divided by: tokens, sequences (mean of means), or constant
    max_response_tokens: int = _later(0)  # the longest answer allowed: by it each counts where loss_norm is constant
    clip_low: float = _later(0.2)  # ppo_clip, dapo, decoupled, rloo: how far the ratio may fall below 1
    clip_high: float = _later(0.28)  # and how far it may rise above 1
    gspo_clip_low: float = _later(3e-4)  # the same for gspo, whose ratio is a mean over the answer
    gspo_clip_high: float = _later(4e-4)
    dual_clip: float = _later(3.0)  # ppo_clip, decoupled: a bad token's loss is at most this times its advantage; 0 off
    ratio_cap: float = _later(5.0)  # cispo: largest ratio a token is weighed by
    tis_cap: float = _later(2.0)  # tis, decoupled: largest weight exp(o - b)
    icepop_low: float = _later(0.5)  # icepop: a token whose exp(o - b) lies outside is dropped
    icepop_high: float = _later(5.0)
    opsm_delta: float = _later(1e-4)  # opsm: drop a bad sample once its mean b - l is above this
    dro_beta: float = _later(0.05)
    # Whole answers that engine and trainer see too differently are dropped: none, mean_ratio or root_length.
    sequence_mask: str = _later("none")
    sequence_ratio_low: float = _later(0.5)  # mean_ratio: an answer whose exp(mean of o - b) lies outside is dropped
    sequence_ratio_high: float = _later(2.0)
    max_per_root_token: float = _later(0.5)  # root_length: drop where |sum of o - b| exceeds it times root of length
    overlong_buffer: int = _later(0)  # tokens before max_response_tokens over which a reward falls by 1; 0 off
    kl_on_dead_groups: bool = _later(False)  # whether a group of equal rewards is still pulled to the base
    max_kl: float = _later(2.0)  # a step further from its sampler, nats per token, is skipped and counted; 0 never

    pref_loss: str = _later("kto")  # kto and apo_zero take single answers; dpo, ipo, cdpo and robust_dpo take pairs
    dpo_beta: float = _later(0.1)
    label_smoothing: float = _later(0.0)  # cdpo, robust_dpo: share of pairs taken to be the wrong way round

    schedule: str = _later("constant")  # constant or cosine: of the learning rate over this update's steps
    warmup_steps: int = _later(0)  # steps over which the learning rate rises
    packing: bool = _later(False)  # several sequences in one row instead of padding; not every model can
    gradient_checkpointing: bool = _later(False)  # recompute layers in the backward pass: less memory, a third slower

    optimizer: str = _later("adamw")  # adamw, adamw8bit (moments in 8 bits) or muon (hidden matrices; AdamW the rest)
    muon_momentum: float = _later(0.95)  # muon
    lora_rank: int = _later(0)  # train an adapter of this rank and merge it into the checkpoint; 0 trains every weight
    lora_alpha: int = _later(32)  # lora: the adapter's product is scaled by this over its rank
    lora_targets: str = _later("all-linear")  # lora: names of the layers that get one, by commas; or all but the head

    # A teacher's distribution on the student's own samples, or that of the policy with a hint in its context.
    distill_weight: float = _later(0.0)  # coefficient of the divergence from the teacher; 0 asks none
    distill_beta: float = _later(0.0)  # logits: 0 KL(teacher to student), 1 KL(student to teacher), between: JSD
    distill_estimator: str = _later("logits")  # logits (all of them), top_k (and their rest), sampled (as an advantage)

    # A reward model from preference pairs.
    pair_margin: float = _later(0.0)  # how much more than the other the liked answer should score, unless a pair says
    score_centering: float = _later(0.0)  # coefficient of (s_w + s_l)^2, which holds scores around 0
    heldout_share: float = _later(0.2)  # of the pairs: those of people set aside, only measured
    min_pairs: int = _later(20)  # fewer to learn from are refused

    # PPO against a reward model.
    ppo_iterations: int = _later(10)  # rounds of answering, scoring and learning
    ppo_prompts: int = _later(64)  # answered in each iteration
    ppo_watched: int = _later(64)  # other prompts, answered after each iteration and only measured
    ppo_max_new_tokens: int = _later(128)
    ppo_temperature: float = _later(1.0)
    ppo_kl: float = _later(0.05)  # coefficient of l - f, the KL to the base, taken off the reward of each token
    gae_gamma: float = _later(1.0)
    gae_lambda: float = _later(1.0)
    value_clip: float = _later(0.2)  # how far a value may move from the one before the iteration
    value_learning_rate: float = _later(1e-5)  # of the value network, which has an optimizer of its own
    value_init: str = _later("reward_model")  # the value network begins as: reward_model, or fresh (the policy)
    gold_margin: float = _later(0.25)  # stop once gold is this much below its best while the proxy rises, in its std

    # Text of no product, on which the gate compares the candidate with its base.
    general_texts: str = _later("builtin")  # builtin, a file in the home's texts folder, or "" for none

    snapshot_steps: int = _later(0)  # keep all that a killed run needs after every so many steps; 0 by time alone
    snapshot_s: float = _later(300.0)  # and whenever so many seconds of training are at stake; 0 never

    heldout_every: int = _later(1)  # steps between two looks at what is set aside; the last step always has one

    def __post_init__(self) -> None:
        """Raises ValueError naming the field and what would be right."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float | int) and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} is {value}; it must be a finite number of at least 0")
        for name in ABOVE_0:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in ("adam_beta1", "adam_beta2", "muon_momentum", "min_ess", "clip_low", "heldout_share"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be below 1")
        for name in ("gae_gamma", "gae_lambda"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at most 1")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose from {known}")
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        """Options that are fine each and mean nothing together."""
        if self.correction not in (fits := CORRECTIONS[self.policy_loss]):
            raise ValueError(
                f"correction is {self.correction!r}, which {self.policy_loss} cannot carry: {_why_not(self)}; "
                f"choose from {fits}"
            )
        if self.policy_loss in SEQUENCE_LOSSES and self.loss_norm != "tokens":
            raise ValueError(f"loss_norm is {self.loss_norm!r}, but {self.policy_loss} has one term for each answer")
        if self.loss_norm == "constant" and not self.max_response_tokens:
            raise ValueError("max_response_tokens is 0; loss_norm constant needs the longest completion allowed")
        if self.overlong_buffer and self.overlong_buffer >= self.max_response_tokens:
            raise ValueError(
                f"overlong_buffer is {self.overlong_buffer}; it must be below max_response_tokens "
                f"{self.max_response_tokens}, the longest answer allowed"
            )
        if self.sequence_mask != "none" and self.policy_loss == "dro":
            raise ValueError(f"sequence_mask is {self.sequence_mask!r}, but dro takes answers of any age; choose none")
        if self.sequence_ratio_low >= self.sequence_ratio_high:
            raise ValueError(
                f"sequence_ratio_low is {self.sequence_ratio_low}; it must be below sequence_ratio_high "
                f"{self.sequence_ratio_high}"
            )
        if 0 < self.dual_clip <= 1:
            raise ValueError(f"dual_clip is {self.dual_clip}; it must be above 1, or 0 for none")
        if self.icepop_low >= self.icepop_high:
            raise ValueError(f"icepop_low is {self.icepop_low}; it must be below icepop_high {self.icepop_high}")
        if self.kl_on_dead_groups and not self.base_kl:
            raise ValueError("kl_on_dead_groups is on, but base_kl is 0: there is no KL to the base")
        if self.label_smoothing and self.pref_loss not in ("cdpo", "robust_dpo"):
            raise ValueError(
                f"label_smoothing is {self.label_smoothing}, which only cdpo and robust_dpo use, not {self.pref_loss}"
            )
        if self.label_smoothing >= 0.5:
            raise ValueError(
                f"label_smoothing is {self.label_smoothing}; at .5 a pair says nothing, so it must be below"
            )
        if self.takes_pairs and not self.kto_weight:
            raise ValueError(f"kto_weight is 0, so pref_loss {self.pref_loss} would take no pair")

        if self.distill_beta > 1:
            raise ValueError(f"distill_beta is {self.distill_beta}; it must be between 0 and 1")
        if self.distill_beta and self.distill_estimator != "logits":
            raise ValueError(
                f"distill_beta is {self.distill_beta}, which needs a teacher's logits; "
                f"{self.distill_estimator} has one divergence, so leave it at 0"
            )
        if self.distills_sampled and self.policy_loss in SEQUENCE_LOSSES:
            raise ValueError(
                f"distill_estimator is sampled, which credits each token; {self.policy_loss} has one ratio an answer"
            )

    @property
    def distills_sampled(self) -> bool:
        """Whether a teacher's opinion of each sampled token is part of its advantage."""
        return self.distill_weight > 0 and self.distill_estimator == "sampled"

    @property
    def needs_proximal(self) -> bool:
        """Whether a ratio or a mask compares with the trainer's own log-probabilities before the first step."""
        return self.policy_loss != "reinforce" or self.sequence_mask != "none"

    @property
    def takes_pairs(self) -> bool:
        """Whether the preference loss compares two answers, and leaves single ones out."""
        return self.pref_loss not in SINGLE_LOSSES

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
            fits = {
                str: isinstance(value, str),
                bool: isinstance(value, bool),
                int: is_number and float(value).is_integer(),
                float: is_number,
            }
            if not fits[types[name]]:
                raise ValueError(f"{name} is {value!r}; it must be {types[name].__name__}")
        return cls(**{name: types[name](value) for name, value in values.items()})

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON: two updates with equal digests used the same settings."""
        values = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default or not field.metadata.get("is_later")
        }
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


CHOICES: dict[str, tuple[str, ...]] = {
    "base_kl_estimator": BASE_KL_ESTIMATORS,
    "policy_loss": tuple(CORRECTIONS),
    "correction": tuple(dict.fromkeys(name for names in CORRECTIONS.values() for name in names)),
    "advantage": ADVANTAGES,
    "loss_norm": LOSS_NORMS,
    "sequence_mask": SEQUENCE_MASKS,
    "pref_loss": PREF_LOSSES,
    "distill_estimator": DISTILL_ESTIMATORS,
    "schedule": SCHEDULES,
    "value_init": VALUE_INITS,
    "optimizer": OPTIMIZERS,
}


def _why_not(config: UpdateConfig) -> str:
    if config.correction in ("dppo", "one_sided"):
        return f"the {config.correction.upper()} mask belongs to the ratio to the sampler, which only reinforce takes"
    if config.policy_loss in ("reinforce", "decoupled"):
        return "its loss carries the ratio to the sampler already, which would count twice"
    return "it has one ratio for each answer and no weight for each token"
