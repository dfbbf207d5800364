"""A reviewer's answer with all it does, across rooms: the word about the turn, and the problem made of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db import transaction

from feedback.models import Flag, FlagResolution, FlagState
from feedback.services import review
from feedback.services.review import Answer, Receipt
from feedback.services.review_queue import raise_flag
from registry.errors import Conflict, NotFound
from rl_online.models import BatchSample
from rl_online.services.problems_from_turns import NAME, Added, add_problem, withdraw_problem

MAX_AT_ONCE = 200
PICKED = "picked as a problem of a benchmark"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    receipt: Receipt
    added: Added | None  # the problem that was asked for
    is_correction: bool  # the turn was learnt from already: the new reward is taught in the next batch


def answer_review(
    flag_id: int, answer: Answer, *, reviewer: str, is_problem: bool = False, benchmark: str = NAME
) -> Answered:
    """Keep it, with the problem that goes to the draft `benchmark`.

    Raises as `feedback.services.review.respond` and `problems_from_turns.add_problem` do; then nothing is kept.
    """
    with transaction.atomic():
        review.check(answer)
        flag = Flag.objects.select_related("turn").filter(pk=flag_id).first()
        if flag is None:
            raise NotFound("this flag is gone: its turn was deleted")
        revision = flag.turn.reward_revision
        added = None
        if is_problem:
            added = add_problem(flag.turn, actor=reviewer, is_good=answer.gold == "accept", name=benchmark)
            answer = replace(answer, problem=added.ref)
        receipt = review.respond(flag, answer, reviewer=reviewer)
        is_changed = receipt.turn.reward_revision != revision
        return Answered(receipt=receipt, added=added, is_correction=is_changed and is_learnt(receipt.turn.turn_id))


def pick_problem(turn_ref: str, *, reviewer: str, benchmark: str = NAME) -> Answered:
    """Make an unflagged turn a problem: it is flagged by hand and answered at once, to be undone in Review.

    Raises as `answer_review` does, and Conflict for a turn with an open flag, whose answer would speak of that too.
    """
    with transaction.atomic():
        if Flag.objects.filter(turn__turn_id=turn_ref, state=FlagState.OPEN).exists():
            raise Conflict("it is flagged; answer the flag in Review, and tick that it becomes a problem")
        flag = raise_flag(turn_ref, reason=PICKED, raised_by=reviewer)
        fine = Answer(resolution=FlagResolution.FINE)
        return answer_review(flag.pk, fine, reviewer=reviewer, is_problem=True, benchmark=benchmark)


def answer_many(flag_ids: Sequence[int], answer: Answer, *, reviewer: str) -> tuple[int, int]:
    """(flags this person's answer was kept for, of those asked for the ones that are settled, gone or had it)."""
    wanted = set(flag_ids[:MAX_AT_ONCE])
    kept: set[int] = set()
    for flag in Flag.objects.filter(pk__in=wanted, state=FlagState.OPEN).order_by("id"):
        if flag.pk in kept:
            continue  # of the same turn as one before
        try:
            with transaction.atomic():
                kept |= {one.pk for one in review.respond(flag, answer, reviewer=reviewer).flags}
        except (NotFound, Conflict):
            continue
    return len(kept), len(wanted - kept)


def undo_review(flag_id: int, *, reviewer: str) -> Receipt:
    """Take an answer back, and the problem that it alone had made. Raises as `feedback.services.review.undo` does."""
    with transaction.atomic():
        receipt = review.undo(flag_id, reviewer=reviewer)
        for ref in {response.problem for response in receipt.responses if response.problem}:
            withdraw_problem(ref, actor=reviewer)
        return receipt


def is_learnt(turn_ref: str) -> bool:
    """Whether a batch was sealed with this turn to train on."""
    return BatchSample.objects.filter(turn_ref=turn_ref, is_heldout=False).exists()
