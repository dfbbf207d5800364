"""Supervised fine-tuning on answers that people stand behind: what they accepted, called good, or wrote themselves.

A turn gives one demonstration, by the strongest word about it: an edit or a correction, then a reviewer's gold, then
the user's accept. Of an edit only what the user changed is learnt, see `rewards.edited_span`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from feedback.models import Outcome, ReviewResponse, Turn
from rl_online.collecting import num_tokens_of, of_text, payloads_of, slice_of, text_fault, user_hash
from rl_online.models import BatchSample, UpdateKind
from rl_online.rewards.batch import Sample
from rl_online.rewards.edited_span import edited_tokens
from rl_online.rewards.heldout import choose_heldout
from rl_online.services.pairs import last_edits
from rl_online.services.stages.stage import Ask, Contents, Option, Ready, Stage, spread
from rl_online.services.tokens import Answer, Tokens, answers_as_tokens, num_token_ids, token_fault


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    source: str  # edits | gold | accepted
    turn: Turn
    text: str | None  # what the user made of the answer; None: the answer itself


def look(asked: Ask) -> Ready:
    found, dropped = find_demonstrations(asked)
    counts = [num_tokens_of(one.turn) for one in found]
    return Ready(
        num_ready=len(found),
        num_needed=asked.options["at_least"],
        num_excluded=dict(dropped),
        sources=dict(Counter(one.source for one in found)),
        num_tokens=sum(count for count in counts if count is not None),
        num_uncounted=sum(count is None for count in counts),
    )


def gather(asked: Ask, at_most: int | None) -> Contents:
    """Raises Unavailable."""
    found, dropped = find_demonstrations(asked)
    chosen = found if at_most is None else spread(found, at_most)
    payloads = payloads_of([one.turn for one in chosen])
    answers = [
        Answer(turn=one.turn, payload=payloads[one.turn.turn_id], text=one.text, why=one.source)
        for one in chosen
        if one.turn.turn_id in payloads
    ]
    dropped["the text is gone"] += len(chosen) - len(answers)
    originals = [original_of(one) for one in answers if one.text is not None]
    tokens = answers_as_tokens(asked.line, [*answers, *originals])
    num_ids = num_token_ids(asked.line.serving)
    usable: list[tuple[Answer, Tokens, list[int]]] = []
    for one in answers:
        mine, learnt = tokens.get(one.key), _learnt(one, tokens)
        if mine is None:
            dropped["no token ids"] += 1
        elif not any(learnt):
            dropped["nothing was changed"] += 1
        elif fault := token_fault([*mine.prompt, *mine.completion], [], num_ids=num_ids):
            dropped[fault] += 1
        else:
            usable.append((one, mine, learnt))
    aside = choose_heldout([one.turn.turn_id for one, *_ in usable], at_most=asked.config.heldout_samples)
    rows = [_row(one, asked, is_heldout=one.turn.turn_id in aside) for one, *_ in usable]
    return Contents(
        num_units=len(usable),
        samples=[_sample(mine, learnt, row) for (_, mine, learnt), row in zip(usable, rows, strict=True)],
        lineage=[_lineage_of(one.turn, row) for (one, *_), row in zip(usable, rows, strict=True)],
        dropped=dict(+dropped),
    )


def original_of(answer: Answer) -> Answer:
    """Its text as the tokenizer writes it, which is not always how it was sampled: an edit is compared with this."""
    return replace(answer, text=answer.payload.completion)


def _learnt(answer: Answer, tokens: Mapping[tuple[str, str | None], Tokens]) -> list[int]:
    """1 for each token of the completion to imitate; what an edit left as it was is in no sum and no count."""
    mine, was = tokens.get(answer.key), tokens.get(original_of(answer).key)
    if mine is None:
        return []
    if answer.text is None:
        return [1] * len(mine.completion)
    return edited_tokens(was.completion if was else [], mine.completion)


def find_demonstrations(asked: Ask) -> tuple[list[Demonstration], Counter[str]]:
    """The newest that no batch of this kind has taken, in the order of their turns; and why others are left out."""
    options, most = asked.options, asked.options["at_most"]
    found: dict[str, Demonstration] = {}
    if options["edits"]:
        spent = BatchSample.objects.filter(kind=UpdateKind.SFT, turn_ref=OuterRef("turn_ref"), is_correction=False)
        for name, signal in last_edits(asked.line, most, spent).items():
            assert signal.turn is not None
            found[name] = Demonstration(source="edits", turn=signal.turn, text=signal.text)
    unspent = _unspent(asked)
    if options["gold"]:
        gold = unspent.filter(Exists(_called(Outcome.ACCEPT)), ~Exists(_called(Outcome.REJECT)))
        for turn in gold.order_by("-at", "-turn_id")[:most]:
            found.setdefault(turn.turn_id, Demonstration(source="gold", turn=turn, text=None))
    if options["accepted"]:
        accepted = unspent.filter(outcome=Outcome.ACCEPT, label__value__gte=options["least_value"])
        for turn in accepted.order_by("-settled_at", "-turn_id")[:most]:
            found.setdefault(turn.turn_id, Demonstration(source="accepted", turn=turn, text=None))
    bad = set(Turn.objects.filter(Exists(_called(Outcome.REJECT)), turn_id__in=found).values_list("turn_id", flat=True))
    dropped: Counter[str] = Counter()
    kept = []
    for one in found.values():
        reason = text_fault(one.turn)
        if reason is None and one.text is None and one.turn.turn_id in bad:
            reason = "called bad by a reviewer"
        if reason is None:
            kept.append(one)
        else:
            dropped[reason] += 1
    newest = sorted(kept, key=lambda one: (one.turn.at, one.turn.turn_id), reverse=True)[:most]
    return newest[::-1], dropped


def _unspent(asked: Ask) -> QuerySet[Turn]:
    spent = BatchSample.objects.filter(kind=UpdateKind.SFT, turn_ref=OuterRef("turn_id"), is_correction=False)
    return Turn.objects.filter(~Exists(spent), of_text(asked.line)).select_related("label", "session")


def _called(verdict: str) -> QuerySet[ReviewResponse]:
    """What stands of a reviewer's saying so about the turn of the outer query."""
    standing = ReviewResponse.objects.filter(withdrawn_at__isnull=True, is_late=False)
    return standing.filter(flag__turn=OuterRef("pk"), gold=verdict)


def _sample(tokens: Tokens, learnt: list[int], row: dict[str, Any]) -> Sample:
    return Sample(
        token_ids=[*tokens.prompt, *tokens.completion],
        prompt_length=len(tokens.prompt),
        mask=[0] * len(tokens.prompt) + learnt,
        behaviour_logprobs=None,
        reward=1.0,
        baseline=0.0,
        versions=[-1] * (len(tokens.prompt) + len(tokens.completion)),
        row=row,
    )


def _row(answer: Answer, asked: Ask, *, is_heldout: bool) -> dict[str, Any]:
    turn = answer.turn
    return {
        "turn": turn.turn_id,
        "session": turn.session.session_id,
        "user_hash": user_hash(asked.policy.project_id, turn.user),
        "kind": "ce",
        "stage": str(UpdateKind.SFT),
        "slice": slice_of(turn, answer.payload),
        "reward_breakdown": {"demonstration": answer.why},
        "label_reason": answer.why,
        "source": turn.source,
        "sampling": turn.sampling or {},
        **({"is_heldout": True} if is_heldout else {}),
    }


def _lineage_of(turn: Turn, row: dict[str, Any]) -> BatchSample:
    return BatchSample(
        turn_ref=turn.turn_id,
        session_ref=row["session"],
        user_hash=row["user_hash"],
        label_id=turn.label_id,
        reward_revision=turn.reward_revision,
        slice=row["slice"][:200],
        reward=1.0,
        is_heldout="is_heldout" in row,
    )


STAGE = Stage(
    kind=UpdateKind.SFT,
    title="Supervised fine-tuning",
    purpose="Imitate what people accepted, called good or wrote themselves; of an edit only what they changed.",
    unit="demonstrations",
    options=(
        Option(name="accepted", default=True, help="take answers that users accepted as they are"),
        Option(name="gold", default=True, help="take answers that every reviewer who judged them calls good"),
        Option(name="edits", default=True, help="take what users made of an answer, and corrections"),
        Option(
            name="least_value", default=1.0, help="of the label of an accepted answer; 1 leaves partial accepts out"
        ),
        Option(name="at_least", default=16, help="demonstrations, fewer are never trained on"),
        Option(name="at_most", default=1024, help="demonstrations, the newest"),
    ),
    settings=("learning_rate", "epochs", "minibatch_size", "ce_weight", "schedule", "warmup_steps", "packing"),
    preset={},
    look=look,
    gather=gather,
)
