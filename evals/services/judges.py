"""Judges as rows: making a version, giving it work and a budget, and who may not judge whom. Inside a tenant.

A version is never changed; its duty (what it does on live traffic, what it may spend) is, and every change is audited.
"""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction

from evals.judging.judge import STRUCTURED, Judge, Protocol, Rubric, digest_of
from evals.judging.marks import Scale
from evals.judging.scripted import SCRIPTS
from evals.models import JudgeDuty, JudgeVersion, Panel, Subject
from registry import outbound
from registry.errors import Conflict, InvalidInput
from registry.services import audit

SCRIPTED = "scripted"  # the endpoint of judges without a model; their model is one of SCRIPTS
MAX_TEXT = 20_000  # characters of a rubric or template
SAMPLING = {"temperature": 0, "max_tokens": 300}
SAMPLING_KEYS = {"temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "reasoning_effort", STRUCTURED}
DUTY_FIELDS = ("live", "share", "idle_s", "may_judge_itself", "daily_usd", "daily_calls")


class JudgesItself(InvalidInput):
    """A policy would judge its own answers."""


def version_of(judge: Judge) -> JudgeVersion:
    """The row of this judge, made on first use."""
    version, _ = JudgeVersion.objects.get_or_create(
        name=judge.name,
        model=judge.model,
        endpoint=judge.endpoint,
        protocol=judge.protocol.value,
        prompt_digest=judge.prompt_digest,
        parser_version=judge.parser_version,
        sampling=dict(judge.sampling),
        defaults={
            "template": judge.template,
            "rubric": judge.rubric.text,
            "scale_low": judge.rubric.scale.low,
            "scale_high": judge.rubric.scale.high,
        },
    )
    return version


def judge_of(version: JudgeVersion) -> Judge:
    """The row as the judging code knows it."""
    return Judge(
        name=version.name,
        model=version.model,
        endpoint=version.endpoint,
        protocol=Protocol(version.protocol),
        sampling=version.sampling,
        rubric=Rubric(text=version.rubric, scale=Scale(low=version.scale_low, high=version.scale_high)),
        template=version.template,
        prompt_digest=version.prompt_digest,
        parser_version=version.parser_version,
    )


def is_as_it_was(version: JudgeVersion) -> bool:
    """Whether asking it now would say to it what was said before, and read its replies alike."""
    judge = judge_of(version)
    now = Judge(name=judge.name, model=judge.model, protocol=judge.protocol)
    return (digest_of(judge), now.parser_version) == (version.prompt_digest, version.parser_version)


def create_judge(
    *,
    name: str,
    model: str,
    actor: str,
    protocol: str = Protocol.POINTWISE,
    endpoint: str = "",
    rubric: str = "",
    scale_low: float = 1.0,
    scale_high: float = 5.0,
    template: str = "",
    sampling: Mapping[str, Any] | None = None,
) -> JudgeVersion:
    """A new version. Raises InvalidInput naming the field that is wrong, Conflict where one says the same."""
    judge = Judge(
        name=_text(name, "name", most=100),
        model=_text(model, "model", most=200),
        endpoint=_endpoint(endpoint.strip(), model),
        protocol=_protocol(protocol),
        sampling=_sampling(SAMPLING if sampling is None else sampling),
        rubric=Rubric(text=_long(rubric, "rubric"), scale=_scale(scale_low, scale_high)),
        template=_template(template, protocol),
    )
    num = JudgeVersion.objects.count()
    version = version_of(judge)
    if JudgeVersion.objects.count() == num:
        raise Conflict(f"judge {version} says the same; nothing was made")
    audit("create", "judge", version.pk, actor=actor, after={"judge": str(version), "protocol": version.protocol})
    return version


def duty_of(version: JudgeVersion) -> JudgeDuty:
    """What it has to do; a judge nobody gave work judges no live traffic and has no budget."""
    return JudgeDuty.objects.filter(judge=version).first() or JudgeDuty(judge=version, project_id=version.project_id)


def change_duty(version: JudgeVersion, *, actor: str, **changes: Any) -> JudgeDuty:
    """Raises InvalidInput naming the field that is wrong."""
    if unknown := sorted(changes.keys() - set(DUTY_FIELDS)):
        raise InvalidInput(f"is not known; use {', '.join(DUTY_FIELDS)}", field=unknown[0])
    JudgeDuty.objects.get_or_create(judge=version)
    duty = JudgeDuty.objects.select_for_update().get(judge=version)
    before = _said(duty)
    for name, value in changes.items():
        setattr(duty, name, value)
    _check(duty, version)
    duty.changed_by = actor
    duty.save()
    audit("change duty", "judge", version.pk, actor=actor, before=before, after={"judge": str(version), **_said(duty)})
    return duty


def create_panel(name: str, judges: Iterable[int], *, actor: str, quorum: int = 2, max_spread: float = 0.5) -> Panel:
    """Several judges of single answers that speak as one. Raises InvalidInput, or Conflict for a name that is taken."""
    keys = sorted(set(judges))
    found = JudgeVersion.objects.filter(pk__in=keys).exclude(protocol=Protocol.PAIRWISE)
    if len(keys) < 2 or found.count() != len(keys):
        raise InvalidInput("name two judges of single answers or more", field="judges")
    if not 2 <= quorum <= len(keys):
        raise InvalidInput(f"is {quorum}; write 2 to {len(keys)}", field="quorum")
    if not 0 <= max_spread <= 1:
        raise InvalidInput(f"is {max_spread:g}; write 0 to 1", field="max_spread")
    try:
        with transaction.atomic():
            panel = Panel.objects.create(
                name=_text(name, "name", most=100), judges=keys, quorum=quorum, max_spread=max_spread, created_by=actor
            )
    except IntegrityError as error:
        raise Conflict(f"there is a panel {name!r}; a panel is never changed, take another name") from error
    audit("create", "judge panel", panel.pk, actor=actor, after={"panel": panel.name, "judges": keys})
    return panel


def judges_itself(version: JudgeVersion, *rated: str) -> bool:
    """Whether one of these answers is by the policy that judges; any checkpoint of it is the policy."""
    mine = _policy(version.model)
    return any(mine == _policy(name) and "@" in name for name in rated)


def refuse_itself(version: JudgeVersion, *rated: str) -> None:
    """Raises JudgesItself unless somebody allowed it for this version."""
    if judges_itself(version, *rated) and not duty_of(version).may_judge_itself:
        raise JudgesItself(f"{version.model} would judge answers of its own policy; its page is where that is allowed")


def _policy(name: str) -> str:
    policy, at, version = name.rpartition("@")
    return policy if at and version.isdigit() else name


def _said(duty: JudgeDuty) -> dict[str, Any]:
    said = {name: getattr(duty, name) for name in DUTY_FIELDS}
    return {name: str(value) if isinstance(value, Decimal) else value for name, value in said.items()}


def _check(duty: JudgeDuty, version: JudgeVersion) -> None:
    if duty.live and duty.live not in Subject.values:
        raise InvalidInput(f"is {duty.live!r}; write turn, session or nothing", field="live")
    if duty.live and version.protocol in (Protocol.PAIRWISE, Protocol.REFERENCE):
        raise InvalidInput(
            "live traffic has one answer and no reference; take a pointwise or weighted judge", field="live"
        )
    if not 0 < duty.share <= 1:
        raise InvalidInput(f"is {duty.share:g}; write more than 0 and at most 1", field="share")
    if not 1 <= duty.idle_s <= 7 * 24 * 3600:
        raise InvalidInput(f"is {duty.idle_s}; write 1 second to 7 days", field="idle_s")
    if duty.daily_usd is not None and not (duty.daily_usd.is_finite() and 0 <= duty.daily_usd < 10**8):
        raise InvalidInput(f"is {duty.daily_usd}; write dollars, or nothing for no limit", field="daily_usd")
    if duty.daily_calls is not None and not 0 <= duty.daily_calls < 10**9:
        raise InvalidInput(
            f"is {duty.daily_calls}; write a number of calls, or nothing for no limit", field="daily_calls"
        )


def _text(value: str, field: str, *, most: int) -> str:
    value = value.strip()
    if not 0 < len(value) <= most or "\x00" in value:
        raise InvalidInput(f"write 1 to {most} characters", field=field)
    return value


def _long(value: str, field: str) -> str:
    if len(value) > MAX_TEXT or "\x00" in value:
        raise InvalidInput(f"write at most {MAX_TEXT} characters", field=field)
    return value.strip()


def _protocol(value: str) -> Protocol:
    try:
        return Protocol(value)
    except ValueError:
        raise InvalidInput(f"is {value[:40]!r}; write {', '.join(Protocol)}", field="protocol") from None


def _scale(low: float, high: float) -> Scale:
    try:
        return Scale(low=low, high=high)
    except ValueError as error:
        raise InvalidInput(str(error), field="scale_high") from None


def _template(value: str, protocol: str) -> str:
    value = _long(value, "template")
    if value and protocol != Protocol.PAIRWISE and not all(part in value for part in ("{rubric}", "{low}", "{high}")):
        raise InvalidInput("must hold {rubric}, {low} and {high}", field="template")
    return value


def _endpoint(value: str, model: str) -> str:
    if value == SCRIPTED:
        if model.removeprefix("scripted/") not in SCRIPTS:
            raise InvalidInput(f"is no script; write scripted/{', scripted/'.join(SCRIPTS)}", field="model")
        return value
    if len(value) > 300:
        raise InvalidInput("write at most 300 characters", field="endpoint")
    return outbound.check_url(value, field="endpoint").rstrip("/") if value else ""


def _sampling(value: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(value.keys() - SAMPLING_KEYS):
        raise InvalidInput(
            f"{unknown[0][:40]!r} is not known; use {', '.join(sorted(SAMPLING_KEYS))}", field="sampling"
        )
    for name, setting in value.items():
        is_number = isinstance(setting, (int, float)) and not isinstance(setting, bool) and math.isfinite(setting)
        if not {STRUCTURED: isinstance(setting, bool), "reasoning_effort": isinstance(setting, str)}.get(
            name, is_number
        ):
            raise InvalidInput(f"{name} is {str(setting)[:40]!r}", field="sampling")
    return dict(value)
