"""From a turn that a reviewer picked to a problem of a benchmark draft. Inside a tenant.

A problem is named by the digest of what was asked, so the same question is one problem however often it was asked. The
draft is held out: what becomes a problem is no longer trained on (feedback.services.review).
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from evals.models import Problem
from evals.refs import problem_ref
from evals.scorers.scorer import ProblemSpec
from evals.selectors import find_problem
from evals.services import drafts
from feedback.models import ReviewResponse, Turn, TurnPayload, UserSignal
from registry.errors import InvalidInput, NotFound
from registry.services import audit
from rl_online.models import BatchSample

NAME = "reviewed-turns"
DESCRIPTION = "Questions of users that reviewers picked out of the review queue."
SAID_BETTER = ("correction", "edit")  # signals whose text is what the answer should have been


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """The problem a turn became. `is_new` False: the same question was there already, in `problem`'s benchmark."""

    problem: Problem
    is_new: bool

    @property
    def ref(self) -> str:
        return f"{self.problem.benchmark}/{self.problem.problem_id}"


def add_problem(turn: Turn, *, actor: str, is_good: bool | None = None) -> Added:
    """Put what was asked into the draft. `is_good` True: the answer itself is the reference, where no user wrote one.

    Raises InvalidInput when the turn's text is gone, or is not only text.
    """
    payload = TurnPayload.objects.filter(project_id=turn.project_id, turn_id=turn.turn_id, at=turn.at).first()
    if payload is None:
        raise InvalidInput("the text of this turn is not kept, so nothing can be asked again", field="problem")
    draft = drafts.open_draft(NAME, description=DESCRIPTION)
    reference = _users_text(turn) or (payload.completion if is_good else None)
    problem, is_new = drafts.add_problem(draft, _spec(turn, payload), reference=reference)
    added = Added(problem=problem, is_new=is_new)
    if is_new:
        audit("add", "problem", added.ref, actor=actor, after={"turn": turn.turn_id})
    return added


def withdraw_problem(ref: str, *, actor: str) -> bool:
    """Take a problem back that no standing answer wants any more; False when it stays."""
    if ReviewResponse.objects.filter(problem=ref, withdrawn_at__isnull=True).exists():
        return False
    try:
        removed = drafts.remove_problem(find_problem(problem_ref(ref)))
    except NotFound:
        return False
    if removed:
        audit("remove", "problem", ref, actor=actor)
    return removed


def content_id(*, prompt: str | None, messages: list[dict[str, str]] | None) -> str:
    """The name of a question: equal for equal prompts or chats, whoever asked."""
    asked = json.dumps({"prompt": prompt, "messages": messages}, sort_keys=True, ensure_ascii=False)
    return "turn-" + hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _spec(turn: Turn, payload: TurnPayload) -> ProblemSpec:
    messages = None if payload.messages is None else [_text_only(message) for message in payload.messages]
    slices = {"surface": turn.surface, "language": turn.language, "learnt": _learnt(turn)}
    return ProblemSpec(
        id=content_id(prompt=payload.prompt, messages=messages),
        prompt=payload.prompt,
        messages=messages,
        tests=_tests(turn),
        slices={name: value for name, value in slices.items() if value},
    )


def _text_only(message: Any) -> dict[str, str]:
    if not (isinstance(message, dict) and isinstance(message.get("content"), str)):
        raise InvalidInput("this chat holds more than text, which a problem cannot", field="problem")
    return {"role": str(message.get("role", "user")), "content": message["content"]}


def _learnt(turn: Turn) -> str:
    """Whether a checkpoint may know the question by heart."""
    return "yes" if BatchSample.objects.filter(turn_ref=turn.turn_id, is_heldout=False).exists() else "no"


def _tests(turn: Turn) -> dict[str, Any] | None:
    """Those of the problem that the turn is linked to."""
    if turn.problem is None:
        return None
    try:
        return find_problem(problem_ref(turn.problem)).tests
    except (NotFound, InvalidInput):
        return None


def _users_text(turn: Turn) -> str | None:
    """What the user made of the answer, or says it should have been; the newest word."""
    said = UserSignal.objects.filter(turn=turn, kind__in=SAID_BETTER, text__isnull=False)
    return said.order_by("-at", "-id").values_list("text", flat=True).first()
