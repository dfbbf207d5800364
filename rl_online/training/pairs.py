"""Preference pairs of a batch: which are learnt from, which only measured, and which kept for a second judge.

People are split, not pairs: who gave one pair gives others like it, so a model is never measured on people it learnt
from. Torch-free.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_online.rewards.batch import NO_PAIR, Batch
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


def split_pairs(batch: Batch, config: UpdateConfig, *, part: str = "all") -> PairSplit:
    """Who is measured only, and who belongs to which half, follows from the person alone, in every batch.

    Raises ContradictoryUpdate, saying how many, for fewer than `min_pairs` to learn from or nobody to measure.
    """
    if part not in PARTS:
        raise ContradictoryUpdate(f"part is {part!r}; choose from {PARTS}")
    pairs = [one for one in find_pairs(batch, config) if part in ("all", part_of(one.person))]
    given = Counter(one.person for one in pairs)
    people = sorted(given, key=lambda person: _hash(f"heldout:{person}"))
    heldout: set[str] = set()
    for person in people[:-1]:  # somebody is learnt from
        if sum(given[one] for one in heldout) >= config.heldout_share * len(pairs):
            break
        heldout.add(person)
    num_heldout = sum(given[one] for one in heldout)
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
                person=person_of(rejected.row),
                place=place,
            )
        )
    return found


def part_of(person: str) -> str:
    return "gold" if _hash(f"part:{person}")[0] % 2 else "proxy"


def person_of(row: Mapping[str, Any]) -> str:
    """Whose preference the rejected answer's row is: the user, else the session, else the turn alone."""
    return str(row.get("user_hash") or row.get("session") or row.get("turn"))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
