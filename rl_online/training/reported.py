"""What a step's report says of its samples beside losses and drift: rewards by what paid them and whom they come from,
what the answers did and whether that was rewarded, how long they are. Torch-free."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from rl_online.rewards.batch import Sample
from rl_online.training.samples import Stream, TrainingSample

GUARD = "guard_"  # what begins like this is the share of a step's answers that did it


def facts_of(sample: Sample) -> dict[str, float]:
    """Numbers of one sample that a step's report averages, by name.

    Example: breakdown {label: {part: .75}, gate: {...}}, source production, conduct {asks_back: true}, reward .75
        reward_label .75, reward_from_production .75, guard_asks_back 1
    """
    row = sample.row
    parts = {name: part.get("part") for name, part in (row.get("reward_breakdown") or {}).items() if _is_map(part)}
    return {
        **{f"reward_{name}": float(part) for name, part in parts.items() if isinstance(part, int | float)},
        **({f"reward_from_{row['source']}": sample.reward} if row.get("source") else {}),
        **{f"{GUARD}{name}": float(holds) for name, holds in (row.get("conduct") or {}).items()},
    }


def report_samples(samples: Sequence[TrainingSample], logprobs: Sequence[Sequence[float]]) -> dict[str, float]:
    """Means over the answers that are rewarded or judged: of each fact over those that have it; `length` in tokens.

    `credit_of_<guard>` is the mean advantage of the answers that did it: above 0, the step teaches to do it more.
    `entropy` is estimated by -l of the tokens that were sampled for a ratio loss, in nats.
    """
    answers = [one for one in samples if Stream.CE not in one.weights]
    names = sorted({name for one in answers for name in one.facts})
    sampled = [
        logprob for one, row in zip(samples, logprobs, strict=True) if Stream.RL in one.weights for logprob in row
    ]
    return {
        **{name: fmean(one.facts[name] for one in answers if name in one.facts) for name in names},
        **_credit([one for one in answers if Stream.RL in one.weights], names),
        **({"length": fmean(len(one.positions) for one in answers)} if answers else {}),
        **({"entropy": -fmean(sampled)} if sampled else {}),
    }


def _credit(answers: Sequence[TrainingSample], names: Sequence[str]) -> dict[str, float]:
    found = {}
    for name in names:
        did = [one for one in answers if name.startswith(GUARD) and one.facts.get(name) == 1]
        if did:
            found[f"credit_of_{name.removeprefix(GUARD)}"] = fmean(map(_mean_advantage, did))
    return found


def _mean_advantage(one: TrainingSample) -> float:
    return fmean(one.advantage) if isinstance(one.advantage, list) else one.advantage


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping)
