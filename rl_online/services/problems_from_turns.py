"""From a turn that a reviewer picked to a problem of a benchmark draft. Inside a tenant.

A problem is named by the digest of what was asked, so the same question is one problem however often it was asked. One
that is nearly the same as another of its benchmark joins its family, so that intervals count the two as one cluster.
The draft is held out: what becomes a problem is no longer trained on (feedback.services.review).
"""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from evals import overlap
from evals.models import Benchmark, Problem
from evals.refs import problem_ref
from evals.scorers.scorer import ProblemSpec
from evals.selectors import find_problem, spec_of
from evals.services import drafts
from feedback.models import ReviewResponse, Turn, TurnPayload, UserSignal
from registry.errors import InvalidInput, NotFound
from registry.services import audit
from rl_online.models import BatchSample
from rl_online.services.overlaps import ask_about_benchmark

NAME = "reviewed-turns"  # of the benchmark, where no other is named
DESCRIPTION = "Questions of users that reviewers picked out of the review queue."
MOST_NEIGHBOURS = 2000  # problems of a benchmark, the newest, that a new one is compared with
SAID_BETTER = ("correction", "edit")  # signals whose text is what the answer should have been


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """The problem a turn became. `is_new` False: the same question was there already, in `problem`'s benchmark."""

    problem: Problem
    is_new: bool
    neighbour: Problem | None = None  # nearly the same, and of the same benchmark
    share: float = 0.0  # how much of the one stands in the other

    @property
    def ref(self) -> str:
        return f"{self.problem.benchmark}/{self.problem.problem_id}"


def add_problem(turn: Turn, *, actor: str, is_good: bool | None = None, name: str = NAME) -> Added:
    """Put what was asked into the draft of that name, which is opened where there is none.

    `is_good` True: the answer itself is the reference, where no user wrote one. Raises InvalidInput when the turn's
    text is gone, or is not only text, and for a name that cannot be one.
    """
    payload = TurnPayload.objects.filter(project_id=turn.project_id, turn_id=turn.turn_id, at=turn.at).first()
    if payload is None:
        raise InvalidInput("the text of this turn is not kept, so nothing can be asked again", field="problem")
    spec = _spec(turn, payload)
    draft = drafts.open_draft(name, description=DESCRIPTION)
    near = _nearest(draft.name, spec)
    if near is not None:
        spec = replace(spec, slices={**spec.slices, "family": _family_of(near[0], draft)})
    reference = _users_text(turn) or (payload.completion if is_good else None)
    problem, is_new = drafts.add_problem(draft, spec, reference=reference)
    if not is_new:
        return Added(problem=problem, is_new=False)
    added = Added(problem=problem, is_new=True, neighbour=near and near[0], share=near[1] if near else 0.0)
    audit("add", "problem", added.ref, actor=actor, after={"turn": turn.turn_id})
    ask_about_benchmark(draft)
    return added


def neighbours_of(problem: Problem) -> tuple[Problem, float] | None:
    """The problem of its benchmark, in any version, that is nearest to it, and how much of one is in the other."""
    return _nearest(problem.benchmark.name, spec_of(problem), but=problem.problem_id)


def _nearest(name: str, spec: ProblemSpec, *, but: str | None = None) -> tuple[Problem, float] | None:
    rows = Problem.objects.filter(benchmark__name=name).exclude(problem_id=but or spec.id).order_by("-pk")
    columns = rows.values_list("pk", "prompt", "messages")[:MOST_NEIGHBOURS]
    others = ((key, _hashed(overlap.asked_text(prompt, messages))) for key, prompt, messages in columns)
    found = overlap.nearest(overlap.hashed(overlap.asked_text(spec.prompt, spec.messages)), others)
    return found and (Problem.objects.select_related("benchmark").get(pk=found[0]), found[1])


@lru_cache(maxsize=MOST_NEIGHBOURS)
def _hashed(text: str) -> overlap.Text:
    """Problems do not change, and are compared with each new one."""
    return overlap.hashed(text)


def _family_of(neighbour: Problem, draft: Benchmark) -> str:
    """Its family; without one it becomes the first of a new one, where its version can still change."""
    family = neighbour.slices.get("family")
    if family is None:
        family = neighbour.problem_id
        if neighbour.benchmark_id == draft.pk:
            neighbour.slices = {**neighbour.slices, "family": family}
            neighbour.save(update_fields=["slices"])
    return str(family)


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
