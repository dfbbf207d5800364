"""Any object by any of its names: what it is, and the address of its page in the current tenant.

Understood are `<policy>@<version>`, a policy's name, the ids of sessions, turns and signals as their senders made them,
UUIDs of updates, checkpoints and runs, the beginning (8 or more characters) of a checkpoint's or batch's digest, and
`<kind>:<number>` for what has only a number: flag:12, comparison:7, job:9, judgement:3.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.urls import NoReverseMatch, reverse

from console.query import written
from evals.models import Comparison, EvalRun, JudgeCall
from feedback.models import AgentSession, Flag, Turn, UserSignal
from jobs.models import Job
from registry.models import Checkpoint, Policy
from registry.tenancy import current_project_id
from rl_online.models import RewardBatch, UpdateRun

MAX_CHARACTERS = 128
NUMBERED = re.compile(r"#?(flag|comparison|job|judgement)[:-](\d{1,18})")
CHECKPOINT = re.compile(r"([A-Za-z0-9_-]{1,60})@(\d{1,9})")
DIGEST = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """One object and where its page is."""

    kind: str  # session, turn, signal, checkpoint, ...
    title: str
    url: str


def locate(reference: str, project: str) -> Located | None:
    """The object of this name in the current tenant, `project` being its slug; None when there is none."""
    reference = reference.strip()
    if not reference or len(reference) > MAX_CHARACTERS or "\x00" in reference:
        return None
    for look in (_numbered, _checkpoint, _sent, _by_uuid, _by_digest):
        for found in look(reference, _Addresses(project)):
            return found
    return None


@dataclass(frozen=True, slots=True)
class _Addresses:
    project: str

    def first(self, *places: tuple[str, list[object]], query: str = "", at: str = "") -> str:
        """The first of these pages that exists: an object without a page of its own is shown on a list."""
        for name, args in places:
            try:
                return reverse(f"console:{name}", args=[self.project, *args]) + query + at
            except NoReverseMatch:
                continue
        return reverse("console:overview", args=[self.project])


Finder = Callable[[str, _Addresses], Iterator[Located]]


def _numbered(reference: str, to: _Addresses) -> Iterator[Located]:
    match = NUMBERED.fullmatch(reference)
    if match is None:
        return
    kind, number = match[1], int(match[2])
    if number >= 2**63:
        return
    if kind == "flag":
        for flag in Flag.objects.filter(pk=number):
            url = to.first(("flagged", []), query=f"?state={flag.state}", at=f"#flag-{number}")
            yield Located(kind="flag", title=f"Flag {number}: {flag.rule.replace('_', ' ')}", url=url)
    elif kind == "job":
        for job in Job.objects.filter(pk=number, project_id=current_project_id()):
            url = to.first(("job", [number]), ("system", []), ("settings", []))
            yield Located(kind="job", title=f"Job {number}: {job.kind}", url=url)
    elif kind == "comparison":
        for pair in Comparison.objects.filter(pk=number):
            yield _comparison(pair, to)
    else:
        for call in JudgeCall.objects.filter(pk=number).select_related("comparison"):
            yield _comparison(call.comparison, to)


def _comparison(pair: Comparison, to: _Addresses) -> Located:
    url = to.first(("comparison", [pair.pk]), ("win-rates", []), ("judges", []))
    return Located(kind="comparison", title=f"Comparison {pair.pk}: {pair.left} and {pair.right}", url=url)


def _checkpoint(reference: str, to: _Addresses) -> Iterator[Located]:
    match = CHECKPOINT.fullmatch(reference)
    if match:
        named = Checkpoint.objects.filter(policy__name=match[1], version=int(match[2]))
        yield from (_as_checkpoint(one, to) for one in named.select_related("policy"))
    for policy in Policy.objects.filter(name=reference):
        yield Located(kind="policy", title=f"Policy {policy.name}", url=_of_policy(policy, to))


def _as_checkpoint(one: Checkpoint, to: _Addresses) -> Located:
    return Located(kind="checkpoint", title=f"Checkpoint {one}", url=to.first(("checkpoint", [str(one)])))


def _of_policy(policy: Policy, to: _Addresses) -> str:
    return to.first(("checkpoints", []), query=f"?policy={policy.name}")


def _sent(reference: str, to: _Addresses) -> Iterator[Located]:
    """What carries an id that its sender made."""
    for session in AgentSession.objects.filter(session_id=reference):
        yield Located(kind="session", title=f"Session {reference}", url=to.first(("session", [session.session_id])))
    for turn in Turn.objects.filter(turn_id=reference).select_related("session"):
        yield Located(kind="turn", title=f"Turn {reference}", url=turn_address(to.project, turn))
    for signal in UserSignal.objects.filter(signal_id=reference).select_related("turn__session"):
        title = f"Signal {signal.kind} {reference}"
        if signal.turn is not None:
            yield Located(kind="signal", title=title, url=turn_address(to.project, signal.turn))
        elif signal.session_ref is not None and AgentSession.objects.filter(session_id=signal.session_ref).exists():
            yield Located(kind="signal", title=title, url=to.first(("session", [signal.session_ref])))
        else:
            query = "?" + urlencode({"range": "90d", "q": written("signal", reference)})
            yield Located(kind="signal", title=title, url=to.first(("signals", []), query=query))


def turn_address(project: str, turn: Turn) -> str:
    """Its own page, else its place in its session; `turn.session` is loaded."""
    try:
        return reverse("console:turn", args=[project, turn.turn_id])
    except NoReverseMatch:
        return reverse("console:session", args=[project, turn.session.session_id]) + f"#{turn.turn_id}"


def _by_uuid(reference: str, to: _Addresses) -> Iterator[Located]:
    try:
        number = UUID(reference)
    except ValueError:
        return
    for run in UpdateRun.objects.filter(pk=number).select_related("policy"):
        yield Located(kind="update", title=f"Update {run}", url=to.first(("update", [run.pk])))
    for one in Checkpoint.objects.filter(pk=number).select_related("policy"):
        yield _as_checkpoint(one, to)
    for policy in Policy.objects.filter(pk=number):
        yield Located(kind="policy", title=f"Policy {policy.name}", url=_of_policy(policy, to))
    for evaluation in EvalRun.objects.filter(pk=number).select_related("benchmark"):
        url = to.first(("eval-run", [evaluation.pk]), ("compare", []))
        yield Located(kind="run", title=f"Run of {evaluation.checkpoint or evaluation.model}", url=url)


def _by_digest(reference: str, to: _Addresses) -> Iterator[Located]:
    if DIGEST.fullmatch(reference) is None:
        return
    for one in Checkpoint.objects.filter(tree_digest__startswith=reference).select_related("policy")[:1]:
        yield _as_checkpoint(one, to)
    for batch in RewardBatch.objects.filter(digest__startswith=reference)[:1]:
        run = UpdateRun.objects.filter(batch=batch).order_by("-created_at").first()
        url = to.first(("batch", [batch.digest]), *([("update", [run.pk])] if run else []), ("updates", []))
        yield Located(kind="batch", title=f"Batch {batch.digest[:12]}", url=url)
