"""Every algorithm here in one table: what data it needs, its formula, defaults, pitfall, source and function.

docs/algorithms.md prints this table, and a test compares the two. Defaults are read from the functions themselves. The
trainer does not use it: credit is assigned before it, and it sums losses by name.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rl_online.algorithms import (
    base_kl,
    cispo,
    cross_entropy,
    dapo,
    dpo,
    dr_grpo,
    dro,
    gae,
    gkd,
    grpo,
    gspo,
    hint_distillation,
    ipo,
    kto,
    off_policy,
    on_policy_distillation,
    policy_gradient,
    ppo,
    reinforce_plus_plus,
    reward_model,
    rloo,
    sequence_ratio,
    value_loss,
)


class Family(StrEnum):
    """What kind of step an algorithm is; an update takes at most one of each, and any number of losses."""

    CREDIT = "credit"  # rewards -> advantages
    POLICY = "policy and value losses"
    OFF_POLICY = "off-policy corrections"  # weights and masks for a policy loss
    SUPERVISED = "supervised losses"
    PREFERENCE = "preference losses"
    DISTILLATION = "distillation"
    KL = "KL to the base"


@dataclass(frozen=True, kw_only=True, slots=True)
class Algorithm:
    """One row of the table."""

    name: str
    family: Family
    data: str  # what a sample must carry
    formula: str  # to minimise, where it is a loss; symbols as in docs/algorithms.md
    pitfall: str
    source: str
    function: Callable[..., Any]

    @property
    def defaults(self) -> dict[str, Any]:
        """Keyword arguments of the function that have a default, with it."""
        parameters = inspect.signature(self.function).parameters.values()
        return {one.name: one.default for one in parameters if one.default is not one.empty}

    @property
    def row(self) -> tuple[str, ...]:
        """name, data, formula, defaults, pitfall, source and function as Markdown cells."""
        defaults = ", ".join(f"{name} {_short(value)}" for name, value in self.defaults.items())
        module = self.function.__module__.rpartition(".")[2]
        place = f"`{module}.{self.function.__name__}`"
        return (self.name, self.data, f"`{self.formula}`", defaults or "none", self.pitfall, self.source, place)


HEADER = ("name", "data", "formula", "defaults", "pitfall", "source", "function")

_GROUP = "a group of answers to one prompt, each with a reward"
_TOKENS = "sampled tokens with advantage and the trainer's log-probability before the first step (o)"
_PAIRS = "a preferred and a rejected answer to one prompt, scored under policy and base"
_VERDICTS = "single answers called good or bad, scored under policy and base; no sampling log-probabilities"

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="GRPO advantage",
        family=Family.CREDIT,
        data=_GROUP,
        formula="A = (r - mean_g) / (std_g + epsilon), std with n - 1",
        pitfall="prompts almost always or never solved weigh most; a lone answer gets 0, in verl its bare reward",
        source="Shao 2024, arXiv 2402.03300; TRL GRPOTrainer",
        function=grpo.grpo_advantage,
    ),
    Algorithm(
        name="Dr.GRPO advantage",
        family=Family.CREDIT,
        data=_GROUP,
        formula="A = r - mean_g",
        pitfall="divide the token sum by samples x longest length allowed, else length bias comes back",
        source="Liu 2025, arXiv 2503.20783",
        function=dr_grpo.dr_grpo_advantage,
    ),
    Algorithm(
        name="RLOO advantage",
        family=Family.CREDIT,
        data=_GROUP,
        formula="A = r - mean of the others = G/(G-1) (r - mean_g)",
        pitfall="nothing to compare a lone answer with: 0",
        source="Ahmadian 2024, arXiv 2402.14740; TRL RLOOTrainer",
        function=rloo.rloo_advantage,
    ),
    Algorithm(
        name="REINFORCE++",
        family=Family.CREDIT,
        data="token rewards of a whole batch, a KL to the base among them",
        formula="A_t = whiten over the batch (sum_{s>=t} gamma^(s-t) r_s)",
        pitfall="whitened over tokens, so long answers set the mean",
        source="Hu 2025, arXiv 2501.03262; OpenRLHF `reinforce`",
        function=reinforce_plus_plus.reinforce_plus_plus,
    ),
    Algorithm(
        name="REINFORCE++ with baseline",
        family=Family.CREDIT,
        data=_GROUP,
        formula="A_t = whiten over the batch (r - mean_g)",
        pitfall="a batch of mostly dead groups scales the few live ones up",
        source="Hu 2025, arXiv 2501.03262; OpenRLHF `reinforce_baseline`",
        function=reinforce_plus_plus.reinforce_plus_plus_baseline,
    ),
    Algorithm(
        name="GAE",
        family=Family.CREDIT,
        data="token rewards and a value for each token",
        formula="A_t = d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t",
        pitfall="an answer that was cut off needs its bootstrap value in the last reward",
        source="Schulman 2016, arXiv 1506.02438",
        function=gae.gae,
    ),
    Algorithm(
        name="REINFORCE",
        family=Family.POLICY,
        data="single answers with advantage and the log-probabilities recorded at sampling (b)",
        formula="-keep A exp(l - b)",
        pitfall="the ratio to b is in it: a TIS weight on top counts the mismatch twice (slime#1912)",
        source="prime-rl default loss; Williams 1992",
        function=policy_gradient.reinforce,
    ),
    Algorithm(
        name="pull to the sampler",
        family=Family.POLICY,
        data="as REINFORCE",
        formula="(l - b)^2",
        pitfall="twice the k2 estimate, so its coefficient is half of what a KL's would be",
        source="prime-rl `kl_tau`",
        function=policy_gradient.behaviour_pull,
    ),
    Algorithm(
        name="PPO clip",
        family=Family.POLICY,
        data=_TOKENS,
        formula="max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A), r = exp(l - o); dual: at most -c A where A < 0",
        pitfall="a mean of micro-batch means is not the token mean: one count over the whole step",
        source="Schulman 2017, arXiv 1707.06347; Ye 2020, arXiv 1912.09729",
        function=ppo.clipped_surrogate,
    ),
    Algorithm(
        name="DAPO",
        family=Family.POLICY,
        data=_TOKENS,
        formula="PPO clip over all tokens of the step; groups without variance left out; no KL",
        pitfall="TRL's loss_type dapo clips at .2 / .2 unless epsilon_high is given",
        source="Yu 2025, arXiv 2503.14476",
        function=dapo.dapo,
    ),
    Algorithm(
        name="overlong penalty",
        family=Family.CREDIT,
        data="lengths of answers",
        formula="clip((max_length - buffer - T) / buffer, -1, 0), added to r",
        pitfall="a soft limit: the hard one still cuts, so leave cut answers out",
        source="Yu 2025, arXiv 2503.14476",
        function=dapo.overlong_penalty,
    ),
    Algorithm(
        name="RLOO loss",
        family=Family.POLICY,
        data="answers with advantage and o",
        formula="max(-R A, -clip(R) A), R = exp(sum (l - o))",
        pitfall="a sum: 1,000 tokens moved by .002 each make R = 7.39",
        source="TRL RLOOTrainer",
        function=rloo.sequence_surrogate,
    ),
    Algorithm(
        name="GSPO",
        family=Family.POLICY,
        data="answers with advantage and o",
        formula="max(-s A, -clip(s) A), s = exp(mean (l - o))",
        pitfall="with PPO's .2 it never clips",
        source="Zheng 2025, arXiv 2507.18071; TRL importance_sampling_level=sequence",
        function=gspo.gspo,
    ),
    Algorithm(
        name="CISPO",
        family=Family.POLICY,
        data=_TOKENS,
        formula="-sg(clamp(r, ratio_low, ratio_high)) A l",
        pitfall="limits are ratios as in TRL; verl and slime count theirs from 1 under the same option name",
        source="MiniMax-M1, arXiv 2506.13585",
        function=cispo.cispo,
    ),
    Algorithm(
        name="DRO",
        family=Family.POLICY,
        data="tokens of any age with advantage and o",
        formula="-(l A - beta/2 (l - o)^2)",
        pitfall="no clip: beta alone holds it",
        source="Richemond 2024, arXiv 2405.19107; verl `compute_policy_loss_dro`",
        function=dro.dro,
    ),
    Algorithm(
        name="value loss",
        family=Family.POLICY,
        data="values now and before the first step, and returns",
        formula="max((V - R)^2, (V_old + clip(V - V_old) - R)^2) / 2",
        pitfall="the clip is in units of the reward: scale it with them",
        source="verl `compute_value_loss`; OpenRLHF `ValueLoss`",
        function=value_loss.clipped_value_loss,
    ),
    Algorithm(
        name="DPPO mask",
        family=Family.OFF_POLICY,
        data="tokens with advantage and b",
        formula="drop where A > 0 and p - p_b > high, or A < 0 and p_b - p > low",
        pitfall="drops leave the sum, not the count",
        source="prime-rl `dppo_mask_high`, `dppo_mask_low`",
        function=policy_gradient.dppo_keep,
    ),
    Algorithm(
        name="TIS (and decoupled PPO)",
        family=Family.OFF_POLICY,
        data="tokens with o and b",
        formula="weight = clamp(exp(o - b), floor, cap), times PPO clip to o",
        pitfall="o recomputed by the trainer, never l: a weight with gradient is another loss",
        source="Hilton 2022, arXiv 2110.00641; AReaL, slime `--tis-clip`, verl",
        function=off_policy.tis_weight,
    ),
    Algorithm(
        name="IcePop",
        family=Family.OFF_POLICY,
        data="tokens with o and b",
        formula="weight = exp(o - b) within [low, high], else 0",
        pitfall="fixed bounds mask fewer tokens while the mismatch grows",
        source="Ring team 2025; slime `icepop_function`",
        function=off_policy.icepop_weight,
    ),
    Algorithm(
        name="mean-ratio mask",
        family=Family.OFF_POLICY,
        data="answers with o and b",
        formula="keep where low <= exp(mean (o - b)) <= high",
        pitfall="a few wild tokens hide in a long answer",
        source="verl geometric mode; against trl#5814",
        function=sequence_ratio.mean_ratio_keep,
    ),
    Algorithm(
        name="root-length mask",
        family=Family.OFF_POLICY,
        data="answers with o and b",
        formula="keep where |sum (o - b)| <= c sqrt(T)",
        pitfall="allows what independent rounding makes; a drift in one direction grows with T and is caught",
        source="ours, after trl#5814",
        function=sequence_ratio.sum_ratio_keep,
    ),
    Algorithm(
        name="OPSM",
        family=Family.OFF_POLICY,
        data="answers with advantage and b",
        formula="drop where A < 0 and mean (b - l) > threshold",
        pitfall="one-sided: good answers stay however old",
        source="DeepSeek-V3.2, arXiv 2512.02556; slime `--opsm-delta`, TRL off_policy_mask_threshold",
        function=sequence_ratio.opsm_keep,
    ),
    Algorithm(
        name="cross-entropy",
        family=Family.SUPERVISED,
        data="tokens somebody else chose; of an edit only the edited span",
        formula="-l",
        pitfall="needs its own count: sharing one with a ratio loss lets either drown the other",
        source="maximum likelihood",
        function=cross_entropy.cross_entropy,
    ),
    Algorithm(
        name="KTO",
        family=Family.PREFERENCE,
        data=_VERDICTS,
        formula="good: desirable (1 - sigma(beta (R - z))); bad: undesirable (1 - sigma(beta (z - R)))",
        pitfall="keep desirable n_good : undesirable n_bad between 1:1 and 4:3; z needs two answers or more",
        source="Ethayarajh 2024, arXiv 2402.01306; TRL KTOTrainer",
        function=kto.kto,
    ),
    Algorithm(
        name="APO-zero, unpaired",
        family=Family.PREFERENCE,
        data=_VERDICTS,
        formula="KTO with z = 0",
        pitfall="only where good answers are better than the policy's own",
        source="D'Oosterlinck 2024, arXiv 2408.06266; TRL apo_zero_unpaired",
        function=kto.apo_zero_unpaired,
    ),
    Algorithm(
        name="DPO (cDPO)",
        family=Family.PREFERENCE,
        data=_PAIRS,
        formula="-(1 - e) log sigma(beta margin) - e log sigma(-beta margin)",
        pitfall="may lower both answers as long as the rejected one falls faster",
        source="Rafailov 2023, arXiv 2305.18290; Mitchell 2023",
        function=dpo.dpo,
    ),
    Algorithm(
        name="robust DPO",
        family=Family.PREFERENCE,
        data=f"{_PAIRS}; a known share of wrong labels",
        formula="(-(1 - e) log sigma(beta margin) + e log sigma(-beta margin)) / (1 - 2e)",
        pitfall="unbounded below: an e too large rewards overconfidence",
        source="Chowdhury 2024, arXiv 2403.00409",
        function=dpo.robust_dpo,
    ),
    Algorithm(
        name="IPO",
        family=Family.PREFERENCE,
        data=_PAIRS,
        formula="(g_w - g_l - 1/(2 beta))^2, g a gain per token",
        pitfall="per token here as in TRL; with sums beta means something else",
        source="Azar 2023, arXiv 2310.12036; TRL",
        function=ipo.ipo,
    ),
    Algorithm(
        name="reward model (Bradley-Terry)",
        family=Family.PREFERENCE,
        data="pairs with a score each; a margin where people were surer",
        formula="-log sigma(s_w - s_l - margin) + centering (s_w + s_l)^2",
        pitfall="scores are comparable within a prompt alone unless centred; watch length bias",
        source="Llama 2, arXiv 2307.09288; TRL RewardTrainer",
        function=reward_model.bradley_terry,
    ),
    Algorithm(
        name="GKD / JSD",
        family=Family.DISTILLATION,
        data="teacher's full logits on the student's samples, same vocabulary",
        formula="beta KL(T to M) + (1 - beta) KL(S to M), M = beta T + (1 - beta) S; 0: KL(T to S), 1: KL(S to T)",
        pitfall="memory of two full vocabularies per token; halfway is not half of either end",
        source="Agarwal 2023, arXiv 2306.13649; TRL GKDTrainer",
        function=gkd.generalised_jsd,
    ),
    Algorithm(
        name="top-k KL",
        family=Family.DISTILLATION,
        data="an engine's top log-probabilities on the student's samples",
        formula="sum over top of p_T (log p_T - log p_S)",
        pitfall="the tail is left out: a term may be negative",
        source="verl `forward_kl_topk`",
        function=gkd.top_kl_teacher_to_student,
    ),
    Algorithm(
        name="top-k KL with its tail",
        family=Family.DISTILLATION,
        data="as top-k KL",
        formula="the same + t_T (log t_T - log t_S), t the mass outside the top",
        pitfall="a lower bound: how the rest is spread stays unlearnt",
        source="ours: the KL of the coarser distributions",
        function=gkd.kl_top_and_tail,
    ),
    Algorithm(
        name="on-policy distillation",
        family=Family.DISTILLATION,
        data="the teacher's log-probability of each sampled token, and b",
        formula="A_t = -coefficient (b - log p_T), then a policy loss",
        pitfall="each token answers for itself: a return over the rest would count the KL many times",
        source="tinker-cookbook, slime `--opd-kl-coef`",
        function=on_policy_distillation.distillation_advantage,
    ),
    Algorithm(
        name="one-sided mask",
        family=Family.OFF_POLICY,
        data="tokens with b, for distillation",
        formula="drop where p_b - p > low",
        pitfall="lets a token rise as far as the teacher wants",
        source="prime-rl `ref_kl_loss_fn`",
        function=on_policy_distillation.one_sided_keep,
    ),
    Algorithm(
        name="hint self-distillation",
        family=Family.DISTILLATION,
        data="one answer scored with and without a hint in its context, and which turn is flagged",
        formula="JSD(hinted, no gradient; unhinted) over flagged tokens",
        pitfall="rows must predict the same token: the hint shifts its place",
        source="SDPO arXiv 2601.20802, OPSD arXiv 2601.18734; Composer 2.5",
        function=hint_distillation.hint_distillation,
    ),
    Algorithm(
        name="hint advantage",
        family=Family.DISTILLATION,
        data="reward, and the sampled tokens' log-probabilities with a hint (h) and at sampling",
        formula="A_t = reward_weight r + hint_weight (h - o)",
        pitfall="a reward without a baseline pushes every shown answer up",
        source="OpenClaw-RL, arXiv 2603.10165",
        function=hint_distillation.hint_advantage,
    ),
    Algorithm(
        name="ratio x k3",
        family=Family.KL,
        data="tokens with b (or o) and the base's log-probability (f)",
        formula="exp(l - b) (exp(f - l) - 1 + l - f)",
        pitfall="the ratio must carry gradient: that is what makes it right",
        source="TRL use_bias_correction_kl; OpenRLHF#1309",
        function=base_kl.kl_policy_to_base_ratio_k3,
    ),
    Algorithm(
        name="k2",
        family=Family.KL,
        data="tokens the policy itself sampled, with f",
        formula="(l - f)^2 / 2",
        pitfall="value a little off; gradient exact on-policy alone",
        source="Schulman 2020, kl-approx",
        function=base_kl.kl_policy_to_base_k2,
    ),
    Algorithm(
        name="bare k3: KL(base to policy)",
        family=Family.KL,
        data="tokens the policy itself sampled, with f",
        formula="exp(f - l) - 1 + l - f",
        pitfall="gradient of the other KL; here only to match GRPO as published",
        source="Shao 2024, arXiv 2402.03300; TRL use_bias_correction_kl=False",
        function=base_kl.kl_base_to_policy_k3,
    ),
    Algorithm(
        name="k1 as a reward",
        family=Family.KL,
        data="tokens with b and f",
        formula="r_t = -coefficient (b - f)",
        pitfall="in a loss it has no gradient in expectation: a reward only",
        source="Stiennon 2020; Composer 2, arXiv 2603.24477",
        function=base_kl.kl_reward,
    ),
)


def as_markdown() -> str:
    """The tables of docs/algorithms.md, one for each family."""
    return "\n".join(_table(family) for family in Family)


def _table(family: Family) -> str:
    rows = [one.row for one in ALGORITHMS if one.family is family]
    lines = [HEADER, tuple("---" for _ in HEADER), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return f"### {family.capitalize()}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    print(as_markdown())
