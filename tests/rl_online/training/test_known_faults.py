"""Faults that other trainers shipped and fixed, each with the number that shows it, on ours."""

from dataclasses import replace
from math import log
from types import SimpleNamespace

import pytest
import torch

from rl_online.policy.logprobs import pad_rows, selected_logprobs
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.batch import Batch, Sample
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.apply import select_credited, with_references
from rl_online.training.credit import assign_credit
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.local import LocalTrainer
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, TrainingSample, select_samples, why_no_ratio

ON_POLICY = UpdateConfig(policy_loss="ppo_clip", correction="none")


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return build_tiny_policy(tmp_path_factory.mktemp("tiny"), [f"w{n}" for n in range(30)], dtype=torch.float32)


def learner(policy, config=None) -> LocalTrainer:
    return LocalTrainer(policy, config=config or UpdateConfig(), device="cpu", seed=0)


def made_of(losses, stream=Stream.CE, **fields) -> TrainingSample:
    """A sample with a trained token for each of `losses`."""
    ids = list(range(len(losses) + 1))
    return TrainingSample(**{"token_ids": ids, "positions": ids[1:], "weights": {stream: 1.0}, "reward": 0.0, **fields})


def rl(token_ids, positions, **fields) -> TrainingSample:
    fields = {"weights": {Stream.RL: 1.0}, "reward": 1.0, "advantage": 1.0, **fields}
    return TrainingSample(token_ids=token_ids, positions=positions, **fields)


def loss_of(samples, losses, config=None, *, window=None, **options):
    """The summed loss of samples whose tokens have these losses, in a step that holds `window`."""
    objective = Objective.of(window or samples, config or UpdateConfig(), **options)
    return sum(objective.terms(-torch.tensor(losses), samples).values(), torch.zeros(()))


def test_1_micro_batches_of_unequal_length_mean_over_tokens_not_over_means():
    short, long = made_of([10.0]), made_of([1.0, 2.0, 3.0])
    window = [long, short]
    parts = [loss_of([long], [1.0, 2.0, 3.0], window=window), loss_of([short], [10.0], window=window)]
    assert sum(parts).item() == pytest.approx(4.0)  # a mean of means says 6


def test_2_one_two_and_four_micro_batches_give_the_same_loss_and_gradient(policy):
    samples = [
        rl([2, 3, 4, 5, 6], [2, 3, 4], behaviour=[-3.0, -3.5, -3.2]),
        rl([7, 8, 9], [1, 2], behaviour=[-3.4, -3.6], advantage=-0.5),
        made_of([0.0] * 4),
        made_of([0.0] * 3, Stream.PREF, advantage=-1.0, reference=-9.0),
    ]
    seen = {}
    for tokens in (5, 10, 20):
        trainer = learner(policy, UpdateConfig(micro_batch_tokens=tokens))
        found = trainer.forward_backward(samples, Objective.of(samples, UpdateConfig(), kto_reference_point=0.1))
        seen[found.num_passes] = (sum(found.losses.values()), trainer.optimizer.gradients)
    assert sorted(seen) == [1, 2, 4]
    for num in (2, 4):
        assert seen[num][0] == pytest.approx(seen[1][0], abs=1e-6)
        for name, gradient in seen[1][1].items():
            torch.testing.assert_close(seen[num][1][name], gradient, atol=1e-6, rtol=0)


def test_3_a_truncated_row_leaves_the_denominator_too():
    whole, cut = made_of([2.0, 2.0]), replace(made_of([]), token_ids=[1, 2, 3])
    assert loss_of([whole, cut], [2.0, 2.0]).item() == 2.0  # counting the row says 1


def test_4_with_every_row_masked_the_loss_is_0_and_so_is_the_gradient(policy):
    masked = [rl([2, 3, 4], [], behaviour=[]), replace(made_of([]), token_ids=[5, 6])]
    assert loss_of(masked, []).item() == 0.0
    trainer = learner(policy)
    found = trainer.forward_backward(masked, Objective.of(masked, UpdateConfig()))
    assert sum(found.losses.values()) == 0.0
    assert all(gradient.abs().max() == 0 for gradient in trainer.optimizer.gradients.values())


def test_4_with_every_token_rejected_the_loss_is_0_and_finite():
    far = made_of([0.01], Stream.RL, advantage=1.0, behaviour=[-8.0])  # rose by .99: the mask drops it
    logp = torch.tensor([-0.01], requires_grad=True)
    terms = Objective.of([far], UpdateConfig(behaviour_pull=0.0)).terms(logp, [far])
    terms["rl"].backward()
    assert (terms["rl"].item(), logp.grad.item()) == (0.0, 0.0)


@pytest.mark.parametrize("is_on", [False, True])
def test_5_a_group_of_equal_rewards_has_no_policy_gradient_and_a_kl_only_where_asked(is_on):
    config = replace(ON_POLICY, advantage="grpo", base_kl=0.1, kl_on_dead_groups=is_on)
    both = {Stream.RL: 1.0, Stream.REF_KL: 1.0}
    answers = [
        made_of([1.0], Stream.RL, weights=both, behaviour=[-1.0], base=[-2.0], group=group, reward=reward)
        for group, reward in (("dead", 1.0), ("dead", 1.0), ("alive", 1.0), ("alive", 0.0))
    ]
    credited = assign_credit(answers, config)
    assert credited.num_dead == 2
    objective = Objective.of(credited.samples, config)
    assert (objective.counts[Stream.RL], objective.counts[Stream.REF_KL]) == (2, 4 if is_on else 2)
    logp = torch.full((len(credited.samples),), -1.0, requires_grad=True)
    sum(objective.terms(logp, credited.samples).values()).backward()
    alive = logp.grad[-2:]
    assert len(credited.samples) == (4 if is_on else 2)
    assert alive[0] < 0 < alive[1]  # the better answer is pushed up
    if is_on:
        kl_only = torch.full((2,), -1.0, requires_grad=True)
        objective.terms(kl_only, credited.samples[:2])["ref_kl"].backward()
        assert torch.equal(logp.grad[:2], kl_only.grad) and kl_only.grad.abs().min() > 0


def test_7_kto_with_one_label_alone_is_finite_and_a_mean_over_that_class():
    good = [made_of([0.0], Stream.PREF, advantage=1.0, reference=-2.0) for _ in range(3)]
    loss = loss_of(good, [1.0, 2.0, 3.0], kto_reference_point=0.25)
    expected = torch.tensor([1 - torch.sigmoid(torch.tensor(0.1 * (gain - 0.25))) for gain in (1.0, 0.0, -1.0)]).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)


def test_7_its_reference_point_is_measured_on_every_row(policy):
    rows = [made_of([0.0, 0.0], Stream.PREF, advantage=1.0) for _ in range(3)]
    _, partners = with_references(rows, UpdateConfig(), learner(policy).logprobs)
    assert sum(partner is not None for partner in partners) == 3


def test_8_a_token_is_scored_at_the_temperature_it_was_drawn_at():
    class Fixed:
        def __call__(self, **inputs):
            return SimpleNamespace(logits=torch.tensor([[[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]]))

    found = selected_logprobs(Fixed(), pad_rows([[1, 0]], [[1]], [0.6]), is_split=False)
    assert found.item() == pytest.approx(-0.202573, abs=1e-6)  # raw: -.4076; raw / T: -.6793


def test_8_the_first_ratio_to_the_trainers_own_log_probabilities_is_1(policy):
    trainer = learner(policy)
    drawn = [rl([2, 3, 4, 5], [2, 3], behaviour=[-3.0, -4.0], temperature=0.6)]
    (one,), _ = with_references(drawn, ON_POLICY, trainer.logprobs, proximal=trainer.logprobs)
    seen = trainer.forward_backward([one], Objective.of([one], ON_POLICY))
    ratios = [pytest.approx(1.0, abs=1e-5)] * 2
    assert torch.tensor([a - b for a, b in zip(seen.logprobs[0], one.proximal, strict=True)]).exp().tolist() == ratios


def test_9_a_log_probability_inside_a_nucleus_is_another_one_and_never_meets_a_ratio():
    assert (log(0.5 / 0.8), log(0.5)) == (pytest.approx(-0.4700, abs=1e-4), pytest.approx(-0.6931, abs=1e-4))
    one = stored(sampling={"temperature": 1.0, "top_p": 0.8})
    assert why_no_ratio(one) == "drawn with top_p 0.8, so the recorded log-probabilities are not those of the softmax"
    (found,) = select_samples(Batch(digest="", samples=[one]), UpdateConfig(), (0, 1, 2)).samples
    assert Stream.RL not in found.weights


def test_9_where_whole_groups_are_compared_such_a_sample_refuses_the_batch():
    config = replace(ON_POLICY, advantage="grpo")
    batch = Batch(digest="", samples=[stored(group="a"), stored(group="a", sampling={"top_p": 0.8})])
    with pytest.raises(ContradictoryUpdate, match=r"1 samples were drawn with top_p 0\.8"):
        select_credited(batch, config, (0, 1, 2))


@pytest.mark.parametrize(
    "policy_loss, correction", [("reinforce", "tis"), ("reinforce", "icepop"), ("decoupled", "tis")]
)
def test_10_a_weight_on_a_ratio_to_the_sampler_is_refused(policy_loss, correction):
    with pytest.raises(ValueError, match="would count twice"):
        UpdateConfig(policy_loss=policy_loss, correction=correction)


def test_10_a_mismatch_of_half_a_nat_counts_once():
    one = made_of([1.0], Stream.RL, advantage=1.0, behaviour=[-1.5])
    loss = loss_of([one], [1.0], UpdateConfig(behaviour_pull=0.0, correction="none"))
    assert loss.item() == pytest.approx(-(torch.e**0.5))  # twice: -e


@pytest.mark.parametrize("changes", [{}, {"correction": "tis"}, {"policy_loss": "decoupled"}, {"max_lag": 0}])
def test_11_stale_samples_without_a_correction_are_refused(changes):
    batch = Batch(digest="", samples=[stored(), stored(versions=[-1, -1, 1, 1])])
    config = replace(ON_POLICY, **changes)
    if changes:
        assert select_credited(batch, config, (0, 1, 2)).samples or config.max_lag == 0
    else:
        with pytest.raises(ContradictoryUpdate, match="1 samples are up to 1 updates old and correction is none"):
            select_credited(batch, config, (0, 1, 2))


def test_12_the_end_token_is_trained_on_though_it_is_the_padding_too(policy):
    ended, longer = rl([2, 3, 0], [1, 2]), rl([4, 5, 6, 7, 8, 0], [4, 5])
    trainer = learner(policy)
    alone, beside = trainer.logprobs([ended]), trainer.logprobs([ended, longer])
    assert len(beside[0]) == 2
    assert beside[0] == pytest.approx(alone[0], abs=1e-5)
    trainer.forward_backward([replace(ended, behaviour=[-3.0, -3.0])], Objective.of([ended], UpdateConfig()))
    assert trainer.optimizer.gradients["model.embed_tokens.weight"][0].abs().max() > 0


def test_13_a_padded_row_is_scored_as_if_it_stood_alone(policy):
    rows = [rl([2, 3, 4, 5], [1, 2, 3]), rl(list(range(2, 30)), [20, 27])]
    trainer = learner(policy)
    padded, alone = trainer.logprobs(rows), [trainer.logprobs([row])[0] for row in rows]
    for a, b in zip(padded, alone, strict=True):
        assert a == pytest.approx(b, abs=1e-5)


def test_14_a_second_turn_whose_template_rewrote_the_first_is_a_sample_of_its_own():
    first = stored(token_ids=[5, 6, 7, 8])
    second = stored(token_ids=[5, 6, 9, 7, 8, 4], mask=[0] * 4 + [1, 1], prompt_length=4, versions=[-1] * 4 + [2, 2],
                    behaviour_logprobs=[0.0] * 4 + [-1.0, -1.0])  # fmt: skip
    assert second.token_ids[:4] != first.token_ids
    found = select_samples(Batch(digest="", samples=[first, second]), UpdateConfig(), (0, 1, 2)).samples
    assert [[one.token_ids[place] for place in one.positions] for one in found] == [[7, 8], [8, 4]]
    assert [one.token_ids for one in found] == [first.token_ids, second.token_ids]


def stored(*, sampling=None, group=None, **changes) -> Sample:
    row = {"kind": "rl", **({"sampling": sampling} if sampling else {}), **({"group": group} if group else {})}
    fields = {
        "token_ids": [5, 6, 7, 8],
        "prompt_length": 2,
        "mask": [0, 0, 1, 1],
        "behaviour_logprobs": [0.0, 0.0, -1.0, -1.0],
        "reward": 1.0,
        "baseline": 0.5,
        "versions": [-1, -1, 2, 2],
        "row": row,
    }
    return Sample(**(fields | changes))
