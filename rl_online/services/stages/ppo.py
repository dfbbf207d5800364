"""PPO against a reward model, on the prompts of the policy's recent turns. Inside a tenant."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feedback.models import Turn, TurnPayload
from registry.errors import InvalidInput, NotFound
from rl_online.collecting import num_tokens_of, slice_of, user_hash
from rl_online.models import BatchSample, RewardModel, UpdateKind
from rl_online.rewards.batch import Sample
from rl_online.rewards.heldout import choose_heldout
from rl_online.services.own_answers import OwnAnswers, own_answers
from rl_online.services.reward_models import find_reward_model, folder_of_reward_model, usable_reward_models
from rl_online.services.stages.stage import Ask, Contents, Option, Ready, Stage
from rl_online.services.tokens import num_token_ids, token_fault

KIND = UpdateKind.PPO
JUDGES = ("reward_model", "gold")
NOBODY = "none"


def look(asked: Ask) -> Ready:
    judges_of(asked)
    found = _find(asked)
    counts = [num_tokens_of(turn) for turn in found.turns]
    return Ready(
        num_ready=len(found.turns),
        num_needed=asked.options["at_least"],
        num_excluded=dict(found.dropped),
        num_tokens=sum(count for count in counts if count is not None),
        num_uncounted=sum(count is None for count in counts),
    )


def gather(asked: Ask, at_most: int | None) -> Contents:
    """Turns, of which the prompts are answered anew. Raises InvalidInput where a judge is missing."""
    if at_most is not None:
        raise InvalidInput("PPO draws its own answers, so nothing of it can be tried dry; set ppo_iterations 1")
    judges = judges_of(asked)
    found = _find(asked)
    num_ids = num_token_ids(asked.line.serving)
    turns = []
    for turn in found.turns:
        if fault := token_fault(found.payloads[turn.turn_id].prompt_token_ids, [], num_ids=num_ids):
            found.dropped[fault] += 1
        else:
            turns.append(turn)
    aside = choose_heldout([turn.turn_id for turn in turns], at_most=asked.config.heldout_samples)
    samples = [_sample(turn, found.payloads[turn.turn_id], asked, is_heldout=turn.turn_id in aside) for turn in turns]
    return Contents(
        num_units=len(turns),
        samples=samples,
        lineage=[_lineage(turn, sample) for turn, sample in zip(turns, samples, strict=True)],
        dropped=dict(found.dropped),
        inputs={name: str(row.pk) for name, row in judges.items()},
    )


def judges_of(asked: Ask) -> dict[str, RewardModel]:
    """Whom PPO is trained against, and who watches: the newest of part gold wherever there is one, unless gold is none.

    Raises InvalidInput.
    """
    named, watching = (asked.options[name] for name in JUDGES)
    usable = usable_reward_models(asked.policy)
    gold: RewardModel | None = None
    if watching not in ("", NOBODY):
        gold = find_reward_model(asked.policy, watching, field="gold")
    elif not watching:
        gold = usable.filter(part="gold").first()
    if named:
        proxy: RewardModel | None = find_reward_model(asked.policy, named, field="reward_model")
    else:
        proxy = (usable.filter(part="proxy") if gold else usable.exclude(part="gold")).first()
    if proxy is None:
        part = " --option part=proxy" if gold else ""
        raise InvalidInput(
            f"{asked.policy.name} has no reward model to train against; make one with strop update "
            f"{asked.policy.name} --kind reward_model{part}",
            field="reward_model",
        )
    if gold is None:
        return {"reward_model": proxy}
    if (proxy.part, gold.part) != ("proxy", "gold"):
        raise InvalidInput(
            f"{proxy} learnt from part {proxy.part} of the people and {gold} from part {gold.part}; who watches must "
            "know people the other does not: take one of part proxy and one of part gold, or gold none",
            field="gold",
        )
    return {"reward_model": proxy, "gold": gold}


def folders(inputs: Mapping[str, Any]) -> dict[str, Path]:
    """Raises NotFound where the files of a judge are gone."""
    found = {}
    for name in JUDGES:
        if name in inputs:
            row = RewardModel.objects.filter(pk=inputs[name], files_deleted_at__isnull=True).first()
            if row is None:
                raise NotFound(f"the files of reward model {inputs[name]} are deleted")
            found[name] = folder_of_reward_model(row)
    return found


def _find(asked: Ask) -> OwnAnswers:
    """A prompt grows no older with the checkpoint that answered it."""
    most = asked.options["at_most"]
    found = own_answers(asked.line, max_lag=len(asked.line.checkpoints), most=most, needs_logprobs=False, kind=KIND)
    return OwnAnswers(turns=found.turns[:most][::-1], payloads=found.payloads, dropped=found.dropped)


def _sample(turn: Turn, payload: TurnPayload, asked: Ask, *, is_heldout: bool) -> Sample:
    given, said = list(payload.prompt_token_ids), list(payload.completion_token_ids)
    return Sample(
        token_ids=[*given, *said],
        prompt_length=len(given),
        mask=[0] * len(given) + [1] * len(said),
        behaviour_logprobs=None,
        reward=0.0,
        baseline=0.0,
        versions=[-1] * (len(given) + len(said)),
        row={
            "turn": turn.turn_id,
            "session": turn.session.session_id,
            "user_hash": user_hash(asked.policy.project_id, turn.user),
            "kind": "rl",
            "stage": str(KIND),
            "slice": slice_of(turn, payload),
            "source": turn.source,
            **({"is_heldout": True} if is_heldout else {}),
        },
    )


def _lineage(turn: Turn, sample: Sample) -> BatchSample:
    return BatchSample(
        turn_ref=turn.turn_id,
        session_ref=sample.row["session"],
        user_hash=sample.row["user_hash"],
        label_id=turn.label_id,
        reward_revision=turn.reward_revision,
        slice=sample.row["slice"][:200],
        reward=0.0,
        is_heldout=sample.is_heldout,
    )


STAGE = Stage(
    kind=KIND,
    title="PPO",
    purpose="Answer the prompts of recent turns anew and learn what a reward model likes, watched by another one.",
    unit="prompts",
    options=(
        Option(name="reward_model", default="", help="id or run number; empty: the newest of this policy"),
        Option(name="gold", default="", help="who watches: id or run number; empty: the newest of part gold; or none"),
        Option(name="at_least", default=32, help="prompts, fewer are never trained on"),
        Option(name="at_most", default=1024, help="prompts, the newest"),
    ),
    settings=(
        "ppo_iterations", "ppo_prompts", "ppo_watched", "ppo_max_new_tokens", "ppo_temperature", "ppo_kl",
        "gold_margin", "learning_rate", "epochs", "minibatch_size", "clip_low", "clip_high", "gae_gamma", "gae_lambda",
        "value_init", "value_learning_rate", "value_clip", "schedule", "warmup_steps", "snapshot_s",
    ),
    preset={
        "policy_loss": "ppo_clip", "correction": "none", "base_kl": 0.0, "epochs": 2, "clip_high": 0.2,
        "advantage": "baseline", "overlong_buffer": 0, "distill_weight": 0.0,
    },
    look=look,
    gather=gather,
    folders=folders,
    fits_as_update=False,
)  # fmt: skip
