import math
from dataclasses import replace

import pytest
import torch

from rl_online.rewards.update_config import CORRECTIONS, UpdateConfig
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, TrainingSample


def rl(advantage, behaviour, **fields):
    ids = list(range(1 + len(behaviour)))
    positions = list(range(1, len(ids)))
    return TrainingSample(
        token_ids=ids, positions=positions, reward=advantage, advantage=advantage, behaviour=behaviour,
        **{"weights": {Stream.RL: 1.0}, **fields},
    )  # fmt: skip


def other(stream, num_tokens, *, advantage=0.0, weight=1.0, reference=0.0):
    return TrainingSample(
        token_ids=list(range(num_tokens + 1)), positions=list(range(1, num_tokens + 1)), weights={stream: weight},
        reward=advantage, advantage=advantage, reference=reference,
    )  # fmt: skip


def total(terms):
    return sum(term.item() for term in terms.values())


def test_each_stream_is_divided_by_its_own_count():
    samples = [rl(1.0, [-1.0, -1.0]), other(Stream.CE, 1), other(Stream.PREF, 3, advantage=1.0)]
    logp = torch.tensor([-1.0, -1.0, -2.0, -0.5, -0.5, -0.5])
    terms = Objective.of(samples, UpdateConfig()).terms(logp, samples)
    # rl: -(1 + 1) / 2; ce: 2 / 1; kto: 1 - sigma(.1 * -1.5), with reference 0
    assert terms["rl"].item() == pytest.approx(-1.0)
    assert terms["ce"].item() == pytest.approx(2.0)
    assert terms["pref"].item() == pytest.approx(1 - torch.sigmoid(torch.tensor(-0.15)).item())
    assert terms["pull"].item() == 0.0


def test_splitting_a_step_into_micro_batches_does_not_change_its_loss():
    samples = [
        rl(0.5, [-1.0, -2.0, -0.3]),
        rl(-0.2, [-0.7]),
        other(Stream.PREF, 2, advantage=-1.0),
        other(Stream.CE, 2),
    ]
    config = UpdateConfig(base_kl=0.1)
    near = {Stream.RL: 1.0, Stream.REF_KL: 1.0}
    samples[:2] = [replace(one, weights=near, base=[-1.0] * len(one.positions)) for one in samples[:2]]
    objective = Objective.of(samples, config, kto_reference_point=0.3)
    logp = torch.tensor([-1.1, -1.9, -0.4, -0.6, -0.5, -0.4, -1.5, -0.9])
    whole = total(objective.terms(logp, samples))
    parts = total(objective.terms(logp[:3], samples[:1])) + total(objective.terms(logp[3:], samples[1:]))
    assert parts == pytest.approx(whole)


def test_a_sample_weight_scales_its_part_of_every_term():
    half, full = other(Stream.CE, 2, weight=0.5), other(Stream.CE, 2)
    logp = torch.tensor([-1.0, -3.0])
    terms = [Objective.of([one], UpdateConfig()).terms(logp, [one])["ce"].item() for one in (half, full)]
    assert terms == [1.0, 2.0]


def test_terms_that_are_switched_off_are_not_there():
    one = rl(1.0, [-1.0])
    objective = Objective.of([one], UpdateConfig(behaviour_pull=0.0))
    assert set(objective.terms(torch.tensor([-1.0]), [one])) == {"rl"}


def test_a_weight_may_differ_from_token_to_token():
    one = replace(other(Stream.CE, 2), weights={Stream.CE: [1.0, 0.25]})
    assert Objective.of([one], UpdateConfig()).terms(torch.tensor([-1.0, -4.0]), [one])["ce"].item() == 1.0


def test_so_may_the_advantage():
    one = replace(rl(0.0, [-1.0, -1.0]), advantage=[1.0, -3.0])
    config = UpdateConfig(behaviour_pull=0.0)
    logp = torch.tensor([-1.0, -1.0], requires_grad=True)
    Objective.of([one], config).terms(logp, [one])["rl"].backward()
    assert logp.grad.tolist() == [-0.5, 1.5]


def test_the_kl_to_the_base_has_weights_and_a_count_of_its_own():
    both, only_kl = (
        replace(rl(1.0, [-1.0, -1.0]), weights=weights, base=[-1.0, -2.0])
        for weights in ({Stream.RL: 1.0, Stream.REF_KL: [1.0, 0.5]}, {Stream.REF_KL: 2.0})
    )
    objective = Objective.of([both, only_kl], UpdateConfig(base_kl=0.1, base_kl_estimator="k2", behaviour_pull=0.0))
    terms = objective.terms(torch.tensor([-1.0] * 4), [both, only_kl])
    # rl: -(1 + 1) / 2; squares 0 and 1/2 in both samples, so .1 * (.5 * .5 + 2 * .5) / 4
    assert {name: term.item() for name, term in terms.items()} == pytest.approx({"rl": -1.0, "ref_kl": 0.03125})


def pair(number, reference):
    return [
        replace(other(Stream.PREF, 2, reference=reference), pair=number, is_chosen=is_chosen)
        for is_chosen in (True, False)
    ]


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"pref_loss": "dpo"}, -math.log(1 / (1 + math.exp(-0.1)))),  # gains 1 and 0, beta .1
        (
            {"pref_loss": "cdpo", "label_smoothing": 0.25},
            0.75 * math.log1p(math.exp(-0.1)) + 0.25 * math.log1p(math.exp(0.1)),
        ),
        (
            {"pref_loss": "robust_dpo", "label_smoothing": 0.25},
            (0.75 * math.log1p(math.exp(-0.1)) - 0.25 * math.log1p(math.exp(0.1))) / 0.5,
        ),
        ({"pref_loss": "ipo"}, (0.5 - 5.0) ** 2),  # gains per token
    ],
)
def test_pairs_are_learnt_by_the_chosen_loss_each_counting_once(settings, expected):
    samples = pair(0, -3.0) + pair(1, -3.0)
    objective = Objective.of(samples, UpdateConfig(**settings))
    logp = torch.tensor([-1.0, -1.0, -1.5, -1.5] * 2)
    assert objective.counts[Stream.PREF] == 2
    assert objective.terms(logp, samples)["pref"].item() == pytest.approx(expected, rel=1e-5)


def test_single_answers_and_pairs_share_the_count_of_their_stream():
    samples = [other(Stream.PREF, 2, advantage=1.0, reference=-2.0), *pair(0, -2.0)]
    objective = Objective.of(samples, UpdateConfig(pref_loss="dpo"))
    assert objective.terms(torch.full((6,), -1.0), samples)["pref"].item() == pytest.approx((0.5 + math.log(2)) / 2)


TWO = [rl(1.0, [-1.2, -0.8]), rl(-0.5, [-1.0])]
LOGP = torch.tensor([-0.7, -0.9, -1.1])


@pytest.mark.parametrize(
    "settings, expected",
    [
        # o equals b here. ratios 1.6487 (clipped at 1.28), .9048, .9048; advantages 1, 1, -.5
        ({"policy_loss": "ppo_clip", "correction": "none"}, -(1.28 + 0.904837 - 0.5 * 0.904837) / 3),
        ({"policy_loss": "dapo", "correction": "none"}, -(1.28 + 0.904837 - 0.5 * 0.904837) / 3),
        ({"policy_loss": "cispo", "correction": "none"}, (1.648721 * 0.7 + 0.904837 * 0.9 - 0.5 * 0.904837 * 1.1) / 3),
        ({"policy_loss": "decoupled", "correction": "none"}, -(1.28 + 0.904837 - 0.5 * 0.904837) / 3),
        ({"policy_loss": "dro", "correction": "none"}, (0.7 + 0.9 - 0.5 * 1.1 + 0.025 * (0.25 + 0.01 + 0.01)) / 3),
        # one ratio for each answer: exp(.2) = 1.2214 clipped at 1.0004; exp(-.1), clipped at .9997, and a bad answer
        ({"policy_loss": "gspo", "correction": "none"}, (-1.0004 + 0.5 * 0.9997) / 2),
        ({"policy_loss": "rloo", "correction": "none"}, (-1.28 + 0.5 * 0.904837) / 2),  # exp(.4) clipped
        ({"policy_loss": "ppo_clip", "correction": "none", "loss_norm": "sequences"},
         (-(1.28 + 0.904837) / 2 + 0.5 * 0.904837) / 2),
        ({"policy_loss": "ppo_clip", "correction": "none", "loss_norm": "constant", "max_response_tokens": 10},
         -(1.28 + 0.904837 - 0.5 * 0.904837) / 20),
    ],
)  # fmt: skip
def test_the_loss_on_rewards_is_the_one_the_config_names(settings, expected):
    config = UpdateConfig(**settings)
    assert Objective.of(TWO, config).terms(LOGP, TWO)["rl"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "settings, weight",
    [
        ({"correction": "tis"}, 2.0),  # exp(o - b) = 7.39, capped
        ({"correction": "icepop"}, 0.0),  # outside .5 to 5
        ({"policy_loss": "decoupled", "correction": "none"}, 2.0),
        ({"correction": "none"}, 1.0),
    ],
)
def test_a_correction_weighs_what_another_policy_sampled(settings, weight):
    one = rl(1.0, [-3.0], proximal=[-1.0])
    config = UpdateConfig(**{"policy_loss": "ppo_clip", **settings})
    objective = Objective.of([one], config)
    logp = torch.tensor([-1.0])
    assert objective.terms(logp, [one])["rl"].item() == pytest.approx(-weight)
    assert objective.pushes(logp, [one]).tolist() == [weight > 0]


def test_a_bad_answer_the_policy_has_left_is_dropped_and_stays_in_the_count():
    samples = [rl(-1.0, [-1.0]), rl(1.0, [-1.0])]
    config = UpdateConfig(policy_loss="ppo_clip", correction="opsm")
    terms = Objective.of(samples, config).terms(torch.tensor([-1.5, -1.0]), samples)
    assert terms["rl"].item() == pytest.approx(-0.5)


@pytest.mark.parametrize(
    "settings, keeps",
    [
        # mean of o - b: .4 within [ln .5, ln 2], .8 above; sum .8 and 1.6 against .6 * sqrt(2) = .849
        ({"sequence_mask": "mean_ratio"}, [True, False]),
        ({"sequence_mask": "root_length", "max_per_root_token": 0.6}, [True, False]),
        ({"sequence_mask": "root_length", "max_per_root_token": 0.5}, [False, False]),
        ({"sequence_mask": "mean_ratio", "sequence_ratio_high": 3.0}, [True, True]),
    ],
)
@pytest.mark.parametrize("loss", [{}, {"policy_loss": "ppo_clip", "correction": "none"}])
def test_an_answer_its_sampler_drew_too_differently_is_dropped_whole_and_stays_in_the_count(loss, settings, keeps):
    samples = [
        rl(1.0, [-1.0, -1.0], proximal=[-0.5, -0.7]),
        rl(1.0, [-2.0, -2.0], proximal=[-1.0, -1.4]),
    ]
    config = UpdateConfig(behaviour_pull=0.0, **loss, **settings)
    objective = Objective.of(samples, config)
    logp = torch.tensor([-1.0, -1.0, -2.0, -2.0]) if not loss else torch.tensor([-0.5, -0.7, -1.0, -1.4])
    assert config.needs_proximal
    # a ratio of 1 for each kept token, over all four
    assert objective.terms(logp, samples)["rl"].item() == pytest.approx(-2 * sum(keeps) / 4)
    assert objective.pushes(logp, samples).tolist() == [keep for keep in keeps for _ in range(2)]


def test_a_one_sided_mask_lets_any_token_rise_and_none_fall_far():
    # probabilities from .5 to .75 (good, +.25), .25 (good, -.25) and .35 (bad, -.15)
    samples = [rl(advantage, [math.log(0.5)]) for advantage in (1.0, 1.0, -1.0)]
    logp = torch.tensor([0.75, 0.25, 0.35]).log()
    kept = {
        name: Objective.of(samples, UpdateConfig(correction=name)).pushes(logp, samples).tolist()
        for name in ("one_sided", "dppo")
    }
    assert kept == {"one_sided": [True, False, True], "dppo": [False, True, True]}


def test_a_bad_tokens_loss_is_not_capped_by_dapo():
    one = rl(-1.0, [-3.0])
    losses = {
        name: Objective.of([one], UpdateConfig(policy_loss=name, correction="none"))
        .terms(torch.tensor([-1.0]), [one])["rl"].item()
        for name in ("ppo_clip", "dapo")
    }  # fmt: skip
    assert losses == {"ppo_clip": pytest.approx(3.0), "dapo": pytest.approx(math.exp(2))}


def test_single_answers_may_go_without_a_reference_point():
    one = other(Stream.PREF, 1, advantage=1.0, reference=-2.0)
    config = UpdateConfig(pref_loss="apo_zero")
    terms = Objective.of([one], config, kto_reference_point=5.0).terms(torch.tensor([-1.0]), [one])
    assert terms["pref"].item() == pytest.approx(1 - 1 / (1 + math.exp(-0.1)))  # beta .1, gain 1, z = 0


@pytest.mark.parametrize("correction", CORRECTIONS["ppo_clip"])
def test_a_step_without_rewarded_answers_pushes_no_token(correction):
    objective = Objective.of([], UpdateConfig(policy_loss="ppo_clip", correction=correction))
    assert objective.pushes(torch.zeros(0), []).tolist() == []


def test_the_kl_to_the_base_weighs_by_the_ratio_to_who_drew_the_tokens():
    near = {Stream.RL: 1.0, Stream.REF_KL: 1.0}
    one = rl(1.0, [-2.0], proximal=[-1.0], base=[-1.5], weights=near)
    config = UpdateConfig(policy_loss="ppo_clip", correction="tis", base_kl=1.0)
    term = Objective.of([one], config).terms(torch.tensor([-1.0]), [one])["ref_kl"]
    # exp(l - b) = e, not exp(l - o) = 1; k3 of a gap of -.5
    assert term.item() == pytest.approx(math.e * (math.exp(-0.5) - 1 + 0.5))


def test_the_pull_to_the_sampler_is_a_mean_of_means_where_the_loss_is():
    samples = [rl(1.0, [-1.0, -1.0]), rl(1.0, [-1.0])]
    config = UpdateConfig(loss_norm="sequences", behaviour_pull=0.1)
    terms = Objective.of(samples, config).terms(torch.tensor([-1.5, -1.5, -2.0]), samples)
    assert terms["pull"].item() == pytest.approx(0.1 * (0.25 + 1.0) / 2)
