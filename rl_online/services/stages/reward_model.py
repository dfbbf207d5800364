"""A reward model: preference pairs, of all people or of one half of them, and a network that scores answers.

Two halves make two judges that share nobody: PPO is trained against one, and the other watches it.
"""

from functools import partial

from registry.errors import InvalidInput
from rl_online.models import UpdateKind
from rl_online.rewards.batch import Batch
from rl_online.services.pair_samples import PAIR_OPTIONS, gather_pairs, look_at_pairs
from rl_online.services.reward_models import register_reward_model
from rl_online.services.stages.stage import Ask, Contents, Option, Stage
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.pairs import PARTS, split_pairs

KIND = UpdateKind.REWARD_MODEL


def gather(asked: Ask, at_most: int | None) -> Contents:
    """Pairs as `gather_pairs`. Raises InvalidInput where too few are left once people are set aside."""
    contents = gather_pairs(KIND, asked, at_most)
    if at_most is None and contents.num_units >= asked.options["at_least"]:
        try:
            split_pairs(Batch(digest="", samples=contents.samples), asked.config)
        except ContradictoryUpdate as error:
            raise InvalidInput(str(error), field="min_pairs") from None
    contents.inputs["part"] = asked.options["part"]
    return contents


STAGE = Stage(
    kind=KIND,
    title="Reward model",
    purpose="Learn from preference pairs to score any answer, for PPO to be trained against.",
    unit="pairs",
    options=(
        *(one for one in PAIR_OPTIONS if one.name != "at_least"),
        Option(name="at_least", default=32, help="pairs, fewer are never trained on"),
        Option(name="part", default="all", help="of the people: proxy to train against, gold to watch", choices=PARTS),
    ),
    settings=(
        "learning_rate", "epochs", "minibatch_size", "pair_margin", "score_centering", "heldout_share", "min_pairs",
        "schedule", "warmup_steps",
    ),
    preset={"lora_rank": 0, "packing": False},
    look=partial(look_at_pairs, KIND),
    gather=gather,
    register=register_reward_model,
    fits_as_update=False,
)  # fmt: skip
