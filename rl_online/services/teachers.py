"""A teacher behind an address: asked by job `rl_online.ask_teacher` about answers of ours, before an update learns.

Either it answers our prompts itself (any model that chats, whatever its tokenizer), or it says what it holds likely at
each token of our answers (a server that takes token ids and echoes them, of a model with our vocabulary). Every
question is asked once and kept with its cost; what was refused or failed is a state, counted and never learnt from.
"""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from django.db.models import Count, Q, Sum

from evals.judging.completer import Completion, CompletionFailed, CompletionRefused, Prompt
from evals.services.asking import answers
from evals.services.completers import HttpCompleter, key_headers, prices_of
from feedback.models import Turn, TurnPayload
from jobs import crash
from jobs.models import Job, JobState
from jobs.services import ClaimedJob, NotYet, enqueue
from registry import outbound
from registry.budgets import stopped
from registry.errors import InvalidInput
from registry.models import Budget, Deployment, Policy
from registry.pricing import KINDS
from registry.services import audit
from registry.tenancy import tenant
from rl_online.collecting import line_of
from rl_online.models import LearningPlan, TeacherAnswer, TeacherState
from rl_online.services.locks import alone
from rl_online.services.own_answers import own_answers
from rl_online.services.plans import effective_config

ASK_JOB = "rl_online.ask_teacher"
TEXT, LOGPROBS = "text", "logprobs"
# Of a worker's time, which Celery ends at 90 s: questions start within the first, each is given up after the second.
STARTS_S = 20.0
EACH_S = 50.0
LOOK_AGAIN_S = 5.0
AT_ONCE = 8
MOST = 5000  # answers of one asking
MAX_ADDRESS = 500  # characters
MAX_TOKENS = 1024  # of an answer by the teacher
TOP = 20  # likeliest tokens asked for at each place
CONTINUE = "Continue the text. Answer with the continuation alone."
TOKEN_ID = "token_id:"  # how a server says a token by its id


@dataclass(frozen=True, kw_only=True)
class Teacher:
    model: str
    address: str  # base URL of an OpenAI-compatible server
    wants: str  # text | logprobs

    @property
    def answers(self) -> Any:
        return TeacherAnswer.objects.filter(model=self.model, address=self.address, wants=self.wants)

    def completer(self, project_id: UUID) -> HttpCompleter:
        return HttpCompleter(
            base_url=self.address,
            model=self.model,
            headers=key_headers(self.address),
            prices=prices_of(project_id, self.model),
        )


def ask_teacher(policy: Policy, teacher: Teacher, *, at_most: int, actor: str) -> int:
    """Have it asked about the newest answers that it has not been asked about; how many are open. Inside a tenant.

    Raises InvalidInput naming what is wrong, also for a spent budget.
    """
    if teacher.wants not in (TEXT, LOGPROBS):
        raise InvalidInput(f"found {teacher.wants[:20]!r}; give {TEXT} or {LOGPROBS}", field="wants")
    if not teacher.model or len(teacher.model) > 200 or not teacher.model.isprintable():
        raise InvalidInput("name the model as its server calls it", field="teacher")
    if len(teacher.address) > MAX_ADDRESS or not teacher.address.isprintable():
        raise InvalidInput(f"give an address of at most {MAX_ADDRESS} printable characters", field="address")
    outbound.check_url(teacher.address, field="address")
    if not 1 <= at_most <= MOST:
        raise InvalidInput(f"found {at_most}; give 1 to {MOST}", field="at_most")
    if reason := stopped(Budget.Kind.TRAINING):
        raise InvalidInput(reason, field="budget")
    open_now = len(open_questions(policy, teacher, at_most=at_most)[0])
    if open_now:
        payload = {
            "policy": str(policy.id), "model": teacher.model, "address": teacher.address, "wants": teacher.wants,
            "at_most": at_most, "since": time.time(),
        }  # fmt: skip
        names = json.dumps([str(policy.id), teacher.model, teacher.address, teacher.wants])
        key = hashlib.sha256(names.encode()).hexdigest()
        enqueue(ASK_JOB, project_id=policy.project_id, payload=payload, key=key)
        after = {"model": teacher.model, "address": teacher.address, "questions": open_now}
        audit("ask", "teacher", policy.name, actor=actor, after=after)
    return open_now


def open_questions(
    policy: Policy, teacher: Teacher, *, at_most: int, failed_before: float | None = None
) -> tuple[list[Turn], dict[str, TurnPayload]]:
    """Turns it has not answered for, newest first. One that failed is asked again, but once in an asking that began at
    `failed_before` (Unix seconds).
    """
    plan = LearningPlan.objects.get(policy=policy)
    serving = Deployment.objects.select_related("checkpoint").get(policy=policy, alias="default").checkpoint
    found = own_answers(
        line_of(policy, serving), max_lag=effective_config(plan).max_lag, most=at_most, needs_logprobs=False
    )
    asked = teacher.answers.filter(turn__in=[turn.pk for turn in found.turns[:at_most]])
    done = ~Q(state=TeacherState.FAILED)
    if failed_before is not None:
        done |= Q(state=TeacherState.FAILED, created_at__gte=datetime.fromtimestamp(failed_before, UTC))
    answered = set(asked.filter(done).values_list("turn_id", flat=True))
    return [turn for turn in found.turns[:at_most] if turn.pk not in answered], found.payloads


def ask_job(job: ClaimedJob) -> None:
    """In slices; killed anywhere, it goes on with what is not stored yet. Starts no question at a spent budget."""
    given = job.payload
    teacher = Teacher(model=given["model"], address=given["address"], wants=given["wants"])
    # Asked again while it is at it, the teacher has two jobs; only one may ask.
    with alone(lock_of(job.project_id, teacher)) as is_alone:
        if not is_alone:
            raise NotYet(LOOK_AGAIN_S, f"another job still asks {teacher.model}")
        _ask_slice(job, teacher)


def lock_of(project_id: UUID | None, teacher: Teacher) -> str:
    return f"teacher:{project_id}:{teacher.wants}:{teacher.model}:{teacher.address}"


def _ask_slice(job: ClaimedJob, teacher: Teacher) -> None:
    """Raises NotYet while questions are left that were not started."""
    assert job.project_id is not None
    given = job.payload
    last_start = time.monotonic() + STARTS_S
    with tenant(job.project_id):
        policy = Policy.objects.get(id=given["policy"])
        turns, payloads = open_questions(policy, teacher, at_most=given["at_most"], failed_before=given["since"])
        is_spent = bool(stopped(Budget.Kind.TRAINING))
    if not turns or is_spent:
        return

    def may_start() -> bool:
        return not is_spent and time.monotonic() < last_start

    by_key = {turn.pk: (turn, payloads[turn.turn_id]) for turn in turns}
    prompts = {key: cast("Prompt", question(payload, teacher)) for key, (_, payload) in by_key.items()}
    completer = teacher.completer(job.project_id)
    sampling = {"max_tokens": MAX_TOKENS} if teacher.wants == TEXT else ECHO
    asking = answers(completer, prompts, sampling, concurrency=AT_ONCE, seconds_each=EACH_S, may_start=may_start)
    for key, came in asking:
        turn, payload = by_key.pop(key)
        with tenant(job.project_id):
            _keep(teacher, turn, payload, came)
            is_spent = bool(stopped(Budget.Kind.TRAINING))
        crash.point("task.rl_online.ask_teacher.mid")
        job.renew()
    if by_key and not is_spent:
        raise NotYet(0, f"{len(by_key)} questions to {teacher.model} are open")


ECHO = {
    "max_tokens": 1, "temperature": 1, "echo": True, "logprobs": TOP, "return_tokens_as_token_ids": True,
}  # fmt: skip


def question(payload: TurnPayload, teacher: Teacher) -> Prompt | list[int]:
    """What it is sent: our prompt as a chat, or the tokens of prompt and answer."""
    if teacher.wants == LOGPROBS:
        return question_ids(payload)
    if payload.messages is not None:
        return payload.messages
    return [{"role": "system", "content": CONTINUE}, {"role": "user", "content": payload.prompt or ""}]


def _keep(teacher: Teacher, turn: Turn, payload: TurnPayload, came: Completion | CompletionFailed) -> None:
    if not Turn.objects.filter(pk=turn.pk).exists():
        return  # deleted meanwhile, and nothing about it is kept
    values: dict[str, Any]
    if not _is_still(turn, payload, teacher):
        values = {"state": TeacherState.FAILED, "error": "the turn was changed while it was asked about"}
        if isinstance(came, Completion):
            values |= {"usage": dict(came.usage), "cost_usd": came.cost_usd}
    elif isinstance(came, CompletionFailed):
        is_refused = isinstance(came, CompletionRefused)
        values = {"state": TeacherState.REFUSED if is_refused else TeacherState.FAILED, "error": str(came)[:500]}
    else:
        values = {"usage": dict(came.usage), "cost_usd": came.cost_usd} | _said(teacher, payload, came)
    failed = TeacherAnswer.objects.filter(turn=turn, state=TeacherState.FAILED, **_named(teacher)).first()
    if failed is not None:
        values |= _paid(failed, values)
        failed.delete()
    TeacherAnswer.objects.create(turn=turn, **_named(teacher), **_storable(values))


def _paid(failed: TeacherAnswer, values: Mapping[str, Any]) -> dict[str, Any]:
    """Usage and cost of a failure and of asking again; unpriced where either told its usage and has no price."""
    usage, cost = values.get("usage", {}), values.get("cost_usd")
    if not failed.usage:
        return {"usage": usage, "cost_usd": cost}
    if not usage:
        return {"usage": failed.usage, "cost_usd": failed.cost_usd}
    both = (failed.usage, usage)
    total = {kind: sum(one.get(kind, 0) for one in both) for kind in KINDS if any(kind in one for one in both)}
    provided = [Decimal(one["provided_usd"]) for one in both if "provided_usd" in one]
    if provided:
        total["provided_usd"] = f"{sum(provided):f}"
    return {
        "usage": usage | total,
        "cost_usd": None if cost is None or failed.cost_usd is None else cost + failed.cost_usd,
    }


def _storable(values: dict[str, Any]) -> dict[str, Any]:
    """With what no text column takes replaced in its texts: NUL, and halves of characters."""
    return {
        name: value.encode(errors="replace").decode().replace("\0", "\ufffd") if isinstance(value, str) else value
        for name, value in values.items()
    }


def _is_still(turn: Turn, payload: TurnPayload, teacher: Teacher) -> bool:
    """Whether what was asked still stands there; for the rest of the transaction nobody can take it away, so what a
    redaction clears (see migration 0020) is there when it comes.
    """
    rows = TurnPayload.objects.select_for_update().filter(project_id=turn.project_id, turn_id=turn.turn_id, at=turn.at)
    return any(question(row, teacher) == question(payload, teacher) for row in rows)


def _named(teacher: Teacher) -> dict[str, str]:
    return {"model": teacher.model, "address": teacher.address, "wants": teacher.wants}


def _said(teacher: Teacher, payload: TurnPayload, came: Completion) -> dict[str, Any]:
    if teacher.wants == TEXT:
        state = TeacherState.CUT if came.finish_reason == "length" else TeacherState.ANSWERED
        if not came.text.strip():
            return {"state": TeacherState.FAILED, "error": "the answer is empty"}
        return {"state": state, "text": came.text, "reasoning": came.reasoning}
    try:
        return {"state": TeacherState.ANSWERED, "likely": likely_of(came, payload)}
    except ValueError as error:
        return {"state": TeacherState.FAILED, "error": str(error)[:500]}


def likely_of(came: Completion, payload: TurnPayload) -> list[list[Any]]:
    """Of each token of our answer: [its log-probability, [[id, log-probability], ...]], the likeliest first.

    Raises ValueError where the reply is not about our tokens.
    """
    ids, start = question_ids(payload), len(payload.prompt_token_ids)
    if len(came.tokens) < len(ids):
        raise ValueError(f"it says {len(came.tokens)} tokens of {len(ids)}; a server that echoes the prompt is needed")
    found = []
    for place in range(start, len(ids)):
        one = came.tokens[place]
        if _token_id(one.token) != ids[place]:
            raise ValueError(f"token {place} is {one.token[:40]!r} there and {ids[place]} here")
        top = sorted(((_token_id(name), value) for name, value in one.top.items()), key=lambda row: (-row[1], row[0]))
        own = dict(top).get(ids[place])
        if own is None or not all(math.isfinite(value) and value <= 1e-3 for _, value in top):
            raise ValueError(f"token {place} has no log-probability")
        found.append([own, [[token, min(value, 0.0)] for token, value in top]])
    return found


def question_ids(payload: TurnPayload) -> list[int]:
    return [*payload.prompt_token_ids, *payload.completion_token_ids]


def _token_id(name: str) -> int:
    digits = name.removeprefix(TOKEN_ID)
    if digits == name or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"it says the token {name[:40]!r} and not its id; another server is needed")
    return int(digits)


def kept_answers(teacher: Teacher, turns: Sequence[Turn]) -> Mapping[int, TeacherAnswer]:
    """By the key of the turn."""
    return {one.turn_id: one for one in teacher.answers.filter(turn__in=[turn.pk for turn in turns])}


def is_asking(policy: Policy, teacher: Teacher) -> bool:
    """Whether a job is at it, or waits. Inside a tenant."""
    jobs = Job.objects.filter(kind=ASK_JOB, project_id=policy.project_id, state__in=(JobState.QUEUED, JobState.RUNNING))
    return jobs.filter(payload__contains={"policy": str(policy.id)} | _named(teacher)).exists()


def count_answers(policy: Policy, teacher: Teacher, *, at_most: int) -> dict[str, Any]:
    """Of all that it was asked in this project: how many came to what, and what they cost. Inside a tenant."""
    counts = dict.fromkeys(TeacherState.values, 0) | dict(
        teacher.answers.values_list("state").annotate(n=Count("id")).order_by()
    )
    cost = teacher.answers.aggregate(usd=Sum("cost_usd"), unpriced=Count("id", filter=Q(cost_usd=None)))
    num_open = len(open_questions(policy, teacher, at_most=at_most)[0])
    return {"open": num_open, **counts, "usd": str(cost["usd"] or 0), "unpriced": cost["unpriced"]}
