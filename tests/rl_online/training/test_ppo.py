import random
from dataclasses import replace

import pytest
import torch

from rl_online.policy.load import load_policy
from rl_online.policy.sampling import sample_batch
from rl_online.rewards.batch import Batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate, UpdateCancelled, UpdateFailed
from rl_online.training.overoptimisation import curve_of
from rl_online.training.ppo import Credited, Critic, credit_tokens, split_prompts
from rl_online.training.reward_model import run_reward_model
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.state import read_state, state_folder
from rl_online.weights.manifest import verify_folder
from tests.rl_online.training.tiny_pairs import GOOD, PAIR_CONFIG, make_pairs
from tests.rl_online.training.tiny_ppo import (
    PPO_CONFIG,
    WITH_SNAPSHOTS,
    count_good,
    like_one_good,
    make_ppo_request,
    run,
)
from tests.rl_online.training.tiny_update import make_request, make_sample, make_samples

FLAWED = {"proxy": count_good, "gold": like_one_good}


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def answer(length, *, prompt=(2, 3)):
    return TrainingSample(
        token_ids=[*prompt, *range(4, 4 + length)],
        positions=list(range(len(prompt), len(prompt) + length)),
        weights={Stream.RL: 1.0},
        reward=0.0,
        behaviour=[-1.0] * length,
    )


def test_credit_on_three_tokens_by_hand():
    """Two answers, KL .5 -1 and 0 at coefficient .1, scores 1 and -1: rewards -.05, 1.1 and -1.

    A_2 = 1.1 - .25 = .85, A_1 = -.05 + .25 - .5 + .85 = .55, A_3 = -1 - .2 = -1.2; their mean is .0667, their variance
    1.2258.
    """
    credited = credit_tokens(
        [answer(2), answer(1)],
        scores=[1.0, -1.0],
        logprobs=[[-1.0, -2.0], [-0.5]],
        base=[[-1.5, -1.0], [-0.5]],
        values=[[0.5, 0.25], [0.2]],
        config=replace(PPO_CONFIG, ppo_kl=0.1),
    )
    assert credited.returns == [pytest.approx([1.05, 1.1]), pytest.approx([-1.0])]
    first, second = credited.samples
    assert first.advantage == pytest.approx([0.436547, 0.707507], abs=1e-5)
    assert second.advantage == pytest.approx([-1.144054], abs=1e-5)
    assert (first.proximal, first.behaviour, second.reward) == ([-1.0, -2.0], [-1.0, -1.0], -1.0)


def test_a_token_further_from_the_end_gets_less_of_the_surprise():
    """gamma .9, lambda .5, values 0: the score 1 at the last of two tokens is .45 at the first."""
    config = replace(PPO_CONFIG, ppo_kl=0.0, gae_gamma=0.9, gae_lambda=0.5)
    zeros = [[0.0, 0.0]]
    credited = credit_tokens([answer(2)], scores=[1.0], logprobs=zeros, base=zeros, values=zeros, config=config)
    assert credited.returns == [pytest.approx([0.45, 1.0])]


def test_prompts_are_watched_or_trained_on_never_both():
    samples = make_samples(20)
    samples += [replace(samples[0], reward=0.0), replace(samples[3], row={"tombstone": "d"})]
    samples[7] = replace(samples[7], row=samples[7].row | {"is_heldout": True})
    prompts = split_prompts(Batch(digest="d", samples=samples), replace(PPO_CONFIG, ppo_watched=5), seed=1)
    watched, trained = ({tuple(one.token_ids) for one in some} for some in (prompts.watched, prompts.trained))
    assert watched.isdisjoint(trained) and len(watched) == 5 and len(watched | trained) == 20
    assert 7 in {one.place for one in prompts.watched}
    assert len(split_prompts(Batch(digest="d", samples=samples), PPO_CONFIG, seed=1).watched) == 10  # half at most


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
    """A reward model and a gold one, each of one half of the people, whose taste is GOOD."""
    torch.set_num_threads(1)
    root, folders = tmp_path_factory.mktemp("judges"), {}
    for name, part in (("reward_model", "proxy"), ("gold", "gold")):
        request = make_request(
            root,
            make_pairs(192, people=48),
            kind="reward_model",
            inputs={"part": part},
            config=replace(PAIR_CONFIG, epochs=6),
            out_folder=root / "rewards" / name,
        )
        result = run_reward_model(
            request, on_progress=lambda progress: None, is_cancelled=lambda: False, crash=lambda name: None
        )
        assert result.report["accuracy"]["share"] >= 0.8
        folders[name] = result.folder
    return folders


def share_of_good(folder):
    rng = random.Random(9)
    prompts = [make_sample(rng).token_ids[:2] for _ in range(128)]
    generator = torch.Generator().manual_seed(1)
    drawn = sample_batch(
        load_policy(folder), prompts, max_new_tokens=6, temperature=1.0, generator=generator, can_pad=True
    )
    tokens = [token for one in drawn for token in one.token_ids]
    return tokens.count(GOOD) / len(tokens)


def test_against_a_reward_model_it_says_more_of_what_people_like(tmp_path, judges):
    config = replace(PPO_CONFIG, value_init="reward_model", ppo_iterations=4)
    request, seen = make_ppo_request(tmp_path, config, folders=judges), []
    result = run(request, on_progress=seen.append)
    curve = curve_of([one.metrics for one in seen if one.metrics])
    assert share_of_good(request.parent_folder) < 0.06  # one word of 32 that it has no reason to prefer
    assert share_of_good(request.out_folder) > 0.12
    assert curve[-1].proxy > curve[0].proxy + 0.3 and curve[-1].gold > curve[0].gold + 0.3 and curve[-1].kl > 0
    assert verify_folder(request.out_folder).tree_digest == result.tree_digest
    assert result.metrics["is_stopped_early"] == 0


@pytest.fixture(scope="module")
def flawed(tmp_path_factory):
    torch.set_num_threads(1)
    request, seen = make_ppo_request(tmp_path_factory.mktemp("flawed"), WITH_SNAPSHOTS), []
    return request, run(request, on_progress=seen.append, **FLAWED), seen


def test_once_it_only_pleases_its_own_judge_it_stops(flawed):
    _, result, seen = flawed
    curve = curve_of([one.metrics for one in seen if one.metrics])
    assert [one.proxy for one in curve[1:]] == sorted(one.proxy for one in curve[1:])
    assert curve[-1].gold < curve[2].gold - 0.1 and curve[2].gold > curve[0].gold
    assert len(curve) - 1 == 3 < seen[-1].num_steps == 6
    assert (result.metrics["best_iteration"], result.metrics["is_stopped_early"]) == (2, 1)


def test_the_weights_kept_are_those_of_the_iteration_gold_liked_best(flawed, tmp_path):
    _, result, _ = flawed
    two = run(make_ppo_request(tmp_path, replace(PPO_CONFIG, ppo_iterations=2)), **FLAWED)
    assert two.tree_digest == result.tree_digest
    assert (two.optimizer_step, result.optimizer_step) == (8, 8)  # 2 iterations, 2 epochs, 2 minibatches


def test_without_gold_it_goes_on_to_the_end(tmp_path):
    config = replace(PPO_CONFIG, ppo_iterations=4, ppo_prompts=16, ppo_watched=4)
    result = run(make_ppo_request(tmp_path, config), proxy=count_good)
    assert (result.metrics["best_iteration"], result.metrics["num_steps"]) == (4, 4)
    assert "gold" not in result.metrics


def test_where_gold_never_rose_nothing_is_kept(tmp_path):
    config = replace(WITH_SNAPSHOTS, ppo_prompts=16, ppo_watched=8)
    request = make_ppo_request(tmp_path, config)
    with pytest.raises(UpdateFailed, match="no iteration pleased the gold scorer more"):
        run(request, proxy=count_good, gold=lambda answers: [-value for value in count_good(answers)])
    assert not request.out_folder.exists() and not state_folder(request.out_folder).exists()
    assert list(request.out_folder.parent.rglob("*.tmp")) == []


# Where it is killed, and how many iterations a snapshot had by then; each has four minibatches.
POINTS = {
    "ppo.after_rollouts#2": 1,
    "update.after_optimizer#6": 1,
    "ppo.after_steps#3": 2,
    "update.mid_snapshot#3": 2,
    "update.mid_save": 3,
}


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_it_goes_on_and_ends_with_the_same_bits(tmp_path, flawed, point):
    straight, expected, _ = flawed
    request, passed, seen = make_ppo_request(tmp_path, WITH_SNAPSHOTS), [], []
    (request.out_folder.parent / "train" / ".v000002.left.tmp").mkdir(parents=True)  # of one that was really killed
    name, _, times = point.partition("#")

    def kill(passing):
        passed.append(passing)
        if passed.count(name) == int(times or 1):
            raise Killed

    with pytest.raises(Killed):
        run(request, crash=kill, **FLAWED)
    passed.clear()
    again = run(request, crash=passed.append, on_progress=seen.append, **FLAWED)
    assert (again.tree_digest, again.metrics) == (expected.tree_digest, expected.metrics)
    assert passed.count("ppo.after_rollouts") == 3 - POINTS[point]
    assert [one.step for one in seen] == [0, 1, 2, 3]
    states = [read_state(state_folder(one.out_folder)) for one in (request, straight)]
    assert states[0] == states[1]
    assert list(tmp_path.rglob("*.tmp")) == []


@pytest.mark.parametrize(("num_asked", "kept"), [(5, "snapshot-000001"), (6, "snapshot-000001")])
def test_cancelled_it_keeps_its_last_snapshot_and_no_checkpoint(tmp_path, flawed, num_asked, kept):
    """Asked before each iteration and before each of its four steps: the sixth time before the second iteration."""
    request, asked = make_ppo_request(tmp_path, WITH_SNAPSHOTS), []
    with pytest.raises(UpdateCancelled):
        run(request, is_cancelled=lambda: asked.append(1) or len(asked) > num_asked, **FLAWED)
    assert not request.out_folder.exists()
    assert [one.name for one in state_folder(request.out_folder).iterdir()] == [kept]
    assert run(request, **FLAWED).tree_digest == flawed[1].tree_digest


def test_a_value_network_begins_as_the_reward_model_in_the_scale_of_rewards(judges):
    config = UpdateConfig()
    plain = Critic(judges["reward_model"], config, device="cpu").values([answer(3)])[0]
    scaled = Critic(judges["reward_model"], config, device="cpu", mean=1.0, std=2.0).values([answer(3)])[0]
    assert scaled == pytest.approx([(value - 1) / 2 for value in plain]) and len(plain) == 3 and any(plain)


def test_a_value_network_learns_what_to_expect(tmp_path):
    request = make_ppo_request(tmp_path)
    critic = Critic(request.parent_folder, PPO_CONFIG, device="cpu")
    samples = [answer(3), answer(2, prompt=(8, 9, 10))]
    assert critic.values(samples) == [[0.0] * 3, [0.0] * 2]  # a head of zeros
    credited = Credited(samples=samples, values=[[0.0] * 3, [0.0] * 2], returns=[[0.1] * 3, [-0.1] * 2])
    losses = [critic.learn(credited, [1, 0], PPO_CONFIG, lr_scale=1.0) for _ in range(8)]
    assert losses[0] == pytest.approx(0.005)  # .5 * .1^2
    assert losses[-1] < 0.002
    assert critic.values(samples)[0][0] > 0 > critic.values(samples)[1][0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy_loss": "reinforce", "correction": "dppo"}, "takes policy_loss ppo_clip with correction none"),
        ({"base_kl": 0.1}, "set ppo_kl, and base_kl to 0"),
        ({"advantage": "grpo"}, "advantage is grpo, .* set it to baseline"),
        ({"overlong_buffer": 2, "max_response_tokens": 8}, "overlong_buffer is 2, .* set it to 0"),
        ({"distill_weight": 0.5}, "distill_weight is 0.5, but PPO asks no teacher"),
        ({"lora_rank": 4}, "lora_rank is 4, .* set it to 0"),
        ({"packing": True}, "packing is on, .* switch it off"),
        ({"value_init": "reward_model"}, "choose fresh"),
    ],
)
def test_settings_that_are_not_ppos_are_refused(tmp_path, changes, said):
    with pytest.raises(ContradictoryUpdate, match=said):
        run(make_ppo_request(tmp_path, replace(PPO_CONFIG, **changes)), proxy=count_good)


def test_it_needs_a_reward_model(tmp_path):
    with pytest.raises(ContradictoryUpdate, match="reward_model is missing"):
        run(make_ppo_request(tmp_path))


def test_a_gold_scorer_that_learnt_from_the_same_people_is_refused(tmp_path, judges):
    folders = {"reward_model": judges["gold"], "gold": judges["reward_model"]}
    with pytest.raises(ContradictoryUpdate, match="from part gold of the people and gold from part proxy"):
        run(make_ppo_request(tmp_path, folders=folders))


def test_one_prompt_is_too_few(tmp_path):
    with pytest.raises(ContradictoryUpdate, match="has 1 different prompts"):
        run(make_ppo_request(tmp_path, samples=make_samples(1)), proxy=count_good)
