"""Preference pairs of a batch: which are learnt from, which only measured, and which kept for a second judge.

People are split, not pairs: who gave one pair gives others like it, so a model is never measured on people it learnt
from. Torch-free.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from rl_online.rewards.batch import NO_PAIR, Batch, Sample
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate

# Of the people: all, the half a proxy learns from, or the half of the gold scorer that watches it.
PARTS = ("all", "proxy", "gold")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two answers to one prompt, and which was liked better."""

    chosen: list[int]  # token ids, the prompt's included
    rejected: list[int]
    prompt_length: int  # tokens both begin with
    weight: float
    margin: float  # how much more than the other the chosen one should score
    person: str  # user, else session, else turn
    place: int  # in the batch, of the rejected one


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSplit:
    """The pairs of one part of the people."""

    trained: list[Pair]
    heldout: list[Pair]


def split_pairs(batch: Batch, config: UpdateConfig, *, seed: int, part: str = "all") -> PairSplit:
    """`seed` chooses who is measured only; who belongs to which half follows from the person alone, in every batch.

    Raises ContradictoryUpdate for fewer than `min_pairs` in either, saying how many there are.
    """
    if part not in PARTS:
        raise ContradictoryUpdate(f"part is {part!r}; choose from {PARTS}")
    pairs = [one for one in find_pairs(batch, config) if part in ("all", part_of(one.person))]
    marked = {one.person for one in pairs if batch.samples[one.place].is_heldout}
    people = sorted({one.person for one in pairs}, key=lambda person: _hash(f"{seed}:{person}"))
    wanted, heldout = config.heldout_share * len(pairs), set(marked)
    num_heldout = sum(one.person in heldout for one in pairs)
    for person in people:
        if num_heldout >= wanted:
            break
        if person not in heldout:
            heldout.add(person)
            num_heldout += sum(one.person == person for one in pairs)
    trained = [one for one in pairs if one.person not in heldout]
    if len(trained) < config.min_pairs or not heldout:
        raise ContradictoryUpdate(
            f"{len(pairs)} pairs of {len(people)} people (part {part}) leave {len(trained)} to learn from and "
            f"{num_heldout} to measure; min_pairs asks for {config.min_pairs} of people other than those set aside: "
            "gather more, or lower min_pairs"
        )
    return PairSplit(trained=trained, heldout=[one for one in pairs if one.person in heldout])


def find_pairs(batch: Batch, config: UpdateConfig) -> list[Pair]:
    """All whole pairs, in the batch's order. Who sampled the answers and how long ago does not matter."""
    found = []
    for place, rejected in enumerate(batch.samples):
        if rejected.kind != "pref" or rejected.pair == NO_PAIR:
            continue
        chosen = batch.samples[rejected.pair]
        if rejected.is_tombstone or chosen.is_tombstone or rejected.weight == 0:
            continue
        found.append(
            Pair(
                chosen=chosen.token_ids,
                rejected=rejected.token_ids,
                prompt_length=rejected.prompt_length,
                weight=rejected.weight,
                margin=float(rejected.row.get("margin", config.pair_margin)),
                person=_person(rejected, place),
                place=place,
            )
        )
    return found


def part_of(person: str) -> str:
    return "gold" if _hash(f"part:{person}")[0] % 2 else "proxy"


def _person(sample: Sample, place: int) -> str:
    known: Sequence[object] = [sample.row.get(name) for name in ("user_hash", "session", "turn")]
    return str(next((one for one in known if one), place))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
