"""Preference pairs as samples of a batch, for every stage that learns from pairs. Inside a tenant.

Two samples for each pair, the rejected one with the place of the chosen. A preference does not grow old with the
checkpoint that answered, so no versions are sealed. Not here: which pairs there are (`pairs`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rl_online.collecting import num_tokens_of, slice_of, user_hash
from rl_online.models import BatchSample, UpdateKind
from rl_online.rewards.batch import NO_PAIR, Sample
from rl_online.rewards.heldout import choose_heldout
from rl_online.services.pairs import OVER, SOURCES, UNDER, FoundPairs, Pair, find_pairs
from rl_online.services.stages.stage import Ask, Contents, Option, Ready, spread
from rl_online.services.tokens import Answer, Tokens, answers_as_tokens, num_token_ids, token_fault
from rl_online.training.pairs import part_of, person_of

PAIR_OPTIONS = (
    Option(name="choices", default=True, help="take A/B choices: preference signals"),
    Option(name="edits", default=True, help="take edits and corrections over the answer they are of"),
    Option(name="retries", default=True, help="take an accepted answer over the one that was asked again for"),
    Option(name="reviews", default=True, help="take what reviewers call good over what they call bad, in one group"),
    Option(name="people", default=False, help="take people's votes on benchmark problems that are not held out"),
    Option(name="at_least", default=16, help="pairs, fewer are never trained on"),
    Option(name="at_most", default=1024, help="pairs, the newest"),
)

CHOSEN, REJECTED, BASELINE = 1.0, 0.0, 0.5  # so that KTO, too, reads one as good and the other as bad


def look_at_pairs(kind: str, asked: Ask) -> Ready:
    """As `Stage.look`, for a stage with PAIR_OPTIONS."""
    found = _find(kind, asked)
    counts = [num_tokens_of(one.turn) for pair in found.pairs for one in (pair.chosen, pair.rejected)]
    return Ready(
        num_ready=len(found.pairs),
        num_needed=asked.options["at_least"],
        num_excluded=found.dropped,
        sources=dict(Counter(pair.source for pair in found.pairs)),
        num_tokens=sum(count for count in counts if count is not None),
        num_uncounted=sum(count is None for count in counts),
    )


def gather_pairs(kind: str, asked: Ask, at_most: int | None) -> Contents:
    """As `Stage.gather`. Raises Unavailable."""
    found = _find(kind, asked)
    pairs = found.pairs if at_most is None else spread(found.pairs, at_most)
    dropped = Counter(found.dropped)
    tokens = answers_as_tokens(asked.line, [one for pair in pairs for one in (pair.chosen, pair.rejected)])
    num_ids = num_token_ids(asked.line.serving)
    usable: list[tuple[Pair, Tokens, Tokens]] = []
    for pair in pairs:
        chosen, rejected = tokens.get(pair.chosen.key), tokens.get(pair.rejected.key)
        if fault := _fault(chosen, rejected, num_ids):
            dropped[fault] += 1
        elif chosen and rejected:
            usable.append((pair, chosen, rejected))
    names = [_name(pair) for pair, *_ in usable]
    is_split_by_person = kind == UpdateKind.REWARD_MODEL  # by the trainer, see training.pairs
    aside = set() if is_split_by_person else choose_heldout(names, at_most=asked.config.heldout_samples)
    samples: list[Sample] = []
    lineage: list[BatchSample] = []
    for pair, chosen, rejected in usable:
        rows = [_row(pair, one, kind, asked, is_heldout=_name(pair) in aside) for one in (pair.chosen, pair.rejected)]
        samples.append(_sample(rejected.prompt, chosen.completion, rows[0], pair=NO_PAIR))
        samples.append(_sample(rejected.prompt, rejected.completion, rows[1], pair=len(samples) - 1))
        lineage += _lineage(pair, rows, asked)
    return Contents(num_units=len(usable), samples=samples, lineage=lineage, dropped=dict(dropped))


def _find(kind: str, asked: Ask) -> FoundPairs:
    """Of the people of `part`, where a stage has that option."""
    sources = [name for name in SOURCES if asked.options[name]]
    found = find_pairs(asked.line, kind=kind, sources=sources, at_most=asked.options["at_most"])
    part = asked.options.get("part", "all")
    return replace(found, pairs=[one for one in found.pairs if part in ("all", part_of(_person(one, asked)))])


def _person(pair: Pair, asked: Ask) -> str:
    return person_of(_row(pair, pair.rejected, "", asked, is_heldout=False))


def _name(pair: Pair) -> str:
    return ">".join(pair.turn_ids)


def _fault(chosen: Tokens | None, rejected: Tokens | None, num_ids: int) -> str | None:
    """Why they cannot be learnt from; both follow the prompt of the rejected one."""
    if chosen is None or rejected is None:
        return "no token ids"
    if chosen.completion == rejected.completion:
        return "answers are the same"
    faults = [token_fault([*rejected.prompt, *one.completion], [], num_ids=num_ids) for one in (chosen, rejected)]
    return faults[0] or faults[1]


def _sample(prompt: list[int], completion: list[int], row: dict[str, Any], *, pair: int) -> Sample:
    return Sample(
        token_ids=[*prompt, *completion],
        prompt_length=len(prompt),
        mask=[0] * len(prompt) + [1] * len(completion),
        behaviour_logprobs=None,
        reward=CHOSEN if pair == NO_PAIR else REJECTED,
        baseline=BASELINE,
        versions=[-1] * (len(prompt) + len(completion)),
        pair=pair,
        row=row,
    )


def _row(pair: Pair, one: Answer, kind: str, asked: Ask, *, is_heldout: bool) -> dict[str, Any]:
    return {
        "turn": one.turn.turn_id,
        "session": one.turn.session.session_id,
        "user_hash": user_hash(asked.policy.project_id, pair.user or one.turn.user),
        "kind": "pref",
        "stage": str(kind),
        "slice": slice_of(one.turn, one.payload),
        "reward_breakdown": {"pair": pair.source},
        "label_reason": pair.source,
        "source": one.turn.source,
        "sampling": one.turn.sampling or {},
        **({"is_heldout": True} if is_heldout else {}),
    }


def _lineage(pair: Pair, rows: Sequence[dict[str, Any]], asked: Ask) -> list[BatchSample]:
    """Of both answers; a pair of a turn with its edit spends the turn in both parts.

    The chosen one is filed under who gave the preference, the rejected one under who got it, so that either is told of
    what learnt from the pair.
    """
    chosen, rejected = pair.turn_ids
    got = user_hash(asked.policy.project_id, pair.rejected.turn.user)
    people = (rows[0]["user_hash"], got or rows[1]["user_hash"])
    parts = ((pair.chosen, f"{OVER}{rejected}", CHOSEN), (pair.rejected, f"{UNDER}{chosen}", REJECTED))
    return [
        BatchSample(
            part=part,
            turn_ref=one.turn.turn_id,
            session_ref=row["session"],
            user_hash=person,
            label_id=one.turn.label_id,
            reward_revision=one.turn.reward_revision,
            slice=row["slice"][:200],
            reward=reward,
            baseline=BASELINE,
            is_heldout="is_heldout" in row,
        )
        for (one, part, reward), row, person in zip(parts, rows, people, strict=True)
    ]
