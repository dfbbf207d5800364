"""PPO on a two-layer policy, against judges that count a token or a reward model that learnt to."""

from dataclasses import replace

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.ppo import run_ppo
from tests.rl_online.training.tiny_pairs import GOOD
from tests.rl_online.training.tiny_update import make_request, make_samples

PPO_CONFIG = UpdateConfig(
    policy_loss="ppo_clip",
    correction="none",
    learning_rate=1e-2,
    minibatch_size=16,
    epochs=2,
    micro_batch_tokens=2048,
    ppo_iterations=6,
    ppo_prompts=32,
    ppo_watched=32,
    ppo_max_new_tokens=6,
    ppo_kl=0.02,
    value_init="fresh",
    value_learning_rate=1e-2,
    gold_margin=0.1,
    snapshot_s=0.0,
)
WITH_SNAPSHOTS = replace(PPO_CONFIG, snapshot_steps=1)


def make_ppo_request(root, config=PPO_CONFIG, *, samples=None, **changes):
    return make_request(root, samples or make_samples(96), config=config, kind="ppo", **changes)


def run(request, **hooks):
    quiet = {"on_progress": lambda progress: None, "is_cancelled": lambda: False, "crash": lambda name: None}
    return run_ppo(request, **(quiet | hooks))


def said(answer):
    return [answer.token_ids[place] for place in answer.positions]


def count_good(answers):
    """A proxy that likes GOOD, and more of it more."""
    return [float(said(one).count(GOOD)) for one in answers]


def like_one_good(answers):
    """What people want: GOOD once. Each more takes one off."""
    return [min(float(count), 2.0 - count) for count in count_good(answers)]
