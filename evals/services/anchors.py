"""Anchor sets, and a judge's runs on them: asked for by a person, carried out batch by batch, kept for ever.

Nothing comes from the cache: the point is whether the judge still says the same. Inside a tenant.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from evals.judging.anchors import InvalidAnchors, as_item, as_pair, digest_of, is_pair, parse_anchors
from evals.judging.completer import Completer
from evals.judging.judge import Judge
from evals.judging.pairwise import Call, Judgement, Pair, PairVerdict, judge_pair
from evals.judging.pairwise import late as late_pair
from evals.judging.pointwise import Item, Rating, RatingCall, late, rate
from evals.models import AnchorRun, AnchorSet, JudgeCall, JudgeVersion, RunState
from evals.services.budgets import within_budget
from evals.services.completers import completer_of
from evals.services.judges import judge_of
from evals.services.ratings import VERDICTS
from evals.services.runs import storable
from jobs.services import ClaimedJob, enqueue
from registry.errors import Conflict, InvalidInput, NotFound
from registry.services import audit
from registry.tenancy import tenant

ANCHOR_JOB = "evals.anchors"
AT_ONCE = 20
TIMEOUT_S = 60.0  # of a worker's time; Celery ends a task at 90 s
VALUES = {PairVerdict.LEFT: 1.0, PairVerdict.RIGHT: 0.0, PairVerdict.TIE: 0.5, PairVerdict.BOTH_BAD: 0.5}


def create_anchor_set(name: str, items: Any, *, actor: str) -> AnchorSet:
    """A new version of this name. Raises InvalidInput, or Conflict where the newest version says the same."""
    if not 0 < len(name.strip()) <= 100:
        raise InvalidInput("write 1 to 100 characters", field="name")
    try:
        parsed = parse_anchors(storable_items(items))
    except InvalidAnchors as error:
        raise InvalidInput(str(error), field="items") from None
    name, digest = name.strip(), digest_of(parsed)
    versions = AnchorSet.objects.filter(name=name)
    newest = versions.aggregate(version=Max("version"))["version"] or 0
    if versions.filter(version=newest, digest=digest).exists():
        raise Conflict(f"{name}@{newest} holds the same items; nothing was made")
    try:
        with transaction.atomic():
            made = AnchorSet.objects.create(
                name=name, version=newest + 1, items=parsed, digest=digest, created_by=actor
            )
    except IntegrityError as error:
        raise Conflict("another version was made at the same time; look at it and try again") from error
    audit("create", "anchor set", made.pk, actor=actor, after={"anchors": str(made), "items": len(parsed)})
    return made


def storable_items(items: Any) -> Any:
    return [storable(item) if isinstance(item, dict) else item for item in items] if isinstance(items, list) else items


def find_anchor_set(anchors_id: UUID) -> AnchorSet:
    """Raises NotFound."""
    found = AnchorSet.objects.filter(pk=anchors_id).first()
    if found is None:
        raise NotFound("no such anchor set", field="anchors")
    return found


def fits(judge: JudgeVersion, anchors: AnchorSet) -> bool:
    """Whether the set holds what this judge judges."""
    return is_pair(anchors.items[0]) == judge.is_pairwise


def request_anchor_run(judge: JudgeVersion, anchors: AnchorSet, *, actor: str) -> AnchorRun:
    """A run that a worker carries out. Raises Conflict while one runs, InvalidInput for a judge that cannot judge."""
    completer_of(judge)
    if not fits(judge, anchors):
        raise InvalidInput("this set holds what the other kind of judge judges", field="anchors")
    if AnchorRun.objects.filter(judge=judge, anchors=anchors, state=RunState.RUNNING).exists():
        raise Conflict(f"{judge} is being shown {anchors}; wait for it")
    run = AnchorRun.objects.create(judge=judge, anchors=anchors, requested_by=actor)
    audit("run anchors", "judge", judge.pk, actor=actor, after={"judge": str(judge), "anchors": str(anchors)})
    _enqueue(run, start=0)
    return run


def anchor_job(job: ClaimedJob) -> None:
    """The items from `start` on; the last batch ends the run."""
    assert job.project_id is not None
    start = job.payload["start"]
    with tenant(job.project_id):
        run = AnchorRun.objects.select_related("judge", "anchors").get(id=UUID(job.payload["run"]))
        items = run.anchors.items[start : start + AT_ONCE]
        completer, refusal = None, ""
        try:
            completer = within_budget(run.judge, completer_of(run.judge))
        except InvalidInput as error:
            refusal = error.message
    if run.state != RunState.RUNNING:
        return
    asked = asyncio.run(_ask(completer, judge_of(run.judge), items)) if completer else []
    with job.effect(), tenant(job.project_id):
        run = AnchorRun.objects.select_for_update(of=("self",)).select_related("anchors").get(pk=run.pk)
        if refusal:
            run.state, run.error = RunState.FAILED, refusal
        else:
            _record(run, asked)
            if start + AT_ONCE < len(run.anchors.items):
                _enqueue(run, start=start + AT_ONCE)
            else:
                run.state = RunState.DONE
        run.finished_at = None if run.state == RunState.RUNNING else timezone.now()
        run.save()


def _enqueue(run: AnchorRun, *, start: int) -> None:
    payload = {"run": str(run.pk), "start": start}
    enqueue(ANCHOR_JOB, project_id=run.project_id, payload=payload, key=f"{run.pk}:{start}")


async def _ask(completer: Completer, judge: Judge, items: Sequence[dict[str, Any]]) -> list[Judgement | Rating]:
    async with completer:
        return list(
            await asyncio.gather(
                *(
                    _pair(completer, judge, as_pair(item)) if is_pair(item) else _item(completer, judge, as_item(item))
                    for item in items
                )
            )
        )


async def _pair(completer: Completer, judge: Judge, pair: Pair) -> Judgement | Rating:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await judge_pair(completer, judge, pair)
    except TimeoutError:
        return late_pair(pair, f"no verdict within {TIMEOUT_S:.0f} s")


async def _item(completer: Completer, judge: Judge, item: Item) -> Judgement | Rating:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await rate(completer, judge, item)
    except TimeoutError:
        return late(item, f"no mark within {TIMEOUT_S:.0f} s")


def _record(run: AnchorRun, asked: Sequence[Judgement | Rating]) -> None:
    results = dict(run.results)
    for one in asked:
        if isinstance(one, Rating):
            results[one.item.key] = {"state": one.state.value, "value": one.value}
        else:
            results[one.pair.key] = {"state": one.verdict.value, "value": VALUES.get(one.verdict)}
    run.results = results
    JudgeCall.objects.bulk_create(row for one in asked for row in _call_rows(run, one))


def _call_rows(run: AnchorRun, asked: Judgement | Rating) -> list[JudgeCall]:
    said: list[dict[str, Any]]
    calls: Sequence[RatingCall | Call] = asked.calls
    if isinstance(asked, Rating):
        said = [
            {"verdict": VERDICTS[call.state.value], "value": call.value, "mark": call.mark,
             "error": call.error or call.fault} for call in asked.calls
        ]  # fmt: skip
    else:
        said = [{"verdict": call.side.value, "order": call.order, "error": call.error} for call in asked.calls]
    return [
        JudgeCall(
            anchor_run=run,
            judge_id=run.judge_id,
            cache_key="",  # never found again: the next run is to ask anew
            raw=storable(call.raw),
            usage=dict(call.usage),
            cost_usd=call.cost_usd,
            latency_ms=call.latency_ms,
            **{key: storable(value) for key, value in words.items()},
        )
        for call, words in zip(calls, said, strict=True)
    ]
