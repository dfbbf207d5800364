"""Starting an update by hand: what it would learn from and take, its settings, a dry run on a few samples."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.failures import advise
from console.reads import overview as loop
from console.reads import policies
from console.reads import updates as reads
from console.update_forms import option_fields, sent_options, sent_settings, setting_fields, settings_shown
from registry.errors import InvalidInput, NotFound, StropError
from registry.models import Policy, Role
from rl_online.collecting import KTO, RL
from rl_online.models import DryRun, DryRunState, LearningPlan, UpdateKind
from rl_online.rewards.presets import DEFAULT, preset, presets
from rl_online.rewards.update_config import UpdateConfig
from rl_online.services.dry_runs import NUM_SAMPLES, cancel_dry_run, find_dry_run, start_dry_run
from rl_online.services.stages.table import STAGES
from rl_online.services.updates import Forecast, forecast_update, nothing_ready, trigger_update

LOSSES = {RL: "ratio loss", KTO: "KTO"}


@require_http_methods(["GET", "HEAD", "POST"])
@member_required(Role.ENGINEER)
def trigger(request: MemberRequest) -> HttpResponse:
    asked = request.POST if request.method == "POST" else request.GET
    policy = policies.chosen(policies.all_policies(), asked.get("policy"))
    if policy is None or policies.standing(policy).plan is None:
        return redirect("console:updates", request.member.project.slug)
    if request.method != "POST" or "look" in request.POST:
        return _form(request, policy)
    try:
        with transaction.atomic():
            run = trigger_update(policy, actor=request.user.get_username(), **_asked(request))
    except StropError as error:
        return _form(request, policy, error)
    return redirect("console:update", request.member.project.slug, run.id)


@require_POST
@member_required(Role.ENGINEER)
def dry_run_start(request: MemberRequest) -> HttpResponse:
    policy = policies.chosen(policies.all_policies(), request.POST.get("policy"))
    if policy is None:
        raise NotFound("no policy yet")
    try:
        with transaction.atomic():
            row = start_dry_run(policy, actor=request.user.get_username(), **_asked(request))
    except StropError as error:
        return _form(request, policy, error)
    return redirect("console:dry-run", request.member.project.slug, row.id)


@require_safe
@member_required()
def dry_run(request: MemberRequest, dry_run: UUID) -> HttpResponse:
    """The page; over htmx only its moving part."""
    row = find_dry_run(dry_run)
    template = "updates/_dry_run.html" if getattr(request, "htmx", False) else "updates/dry_run.html"
    return render(request, template, _dry_context(row))


@require_POST
@member_required(Role.ENGINEER)
def dry_run_cancel(request: MemberRequest, dry_run: UUID) -> HttpResponse:
    row = find_dry_run(dry_run)

    def act() -> str:
        cancel_dry_run(row, actor=request.user.get_username())
        return "The dry run is cancelled."

    back = reverse("console:dry-run", args=[request.member.project.slug, row.id])
    return carry_out(request, act, back=back)


def _dry_context(row: DryRun) -> dict[str, Any]:
    state = DryRunState(row.state)
    names = dict.fromkeys(name for step in row.steps for name in step if not name.startswith(reads.FACT))
    ordered = [name for name in reads.FIRST if name in names] + sorted(set(names) - set(reads.FIRST))
    return {
        "row": row,
        "is_live": not state.is_over,
        "num_before": reads.queue_position("dry_run", row.id) if state == DryRunState.QUEUED else None,
        "numbers": [(name, [step.get(name) for step in row.steps]) for name in ordered],
        "settings": reads.settings_of(row.config),
        "advice": advise(row.error) if state == DryRunState.FAILED else None,
    }


def _form(request: MemberRequest, policy: Policy, error: StropError | None = None) -> HttpResponse:
    typed = request.POST.dict()
    try:
        forecast = _forecast(request, policy)
    except InvalidInput as invalid:  # what would be refused: the form stands with what was typed
        error = error or invalid
        forecast = _plain_forecast(policy, _kind(request))
    preview, kind = forecast.preview, forecast.preview.kind
    stage, chosen = STAGES.get(kind), _preset(request)
    wrong = _wrong(error)
    plan = LearningPlan.objects.get(policy=policy).update_config
    context = {
        "policy": policy,
        "policies": policies.all_policies(),
        "kind": kind,
        "kinds": [(UpdateKind.ONLINE, "Online", stage is None)]
        + [(one.kind, one.title, one is stage) for one in STAGES.values()],
        "stage": stage,
        "unit": stage.unit if stage else "labelled turns",
        "preview": preview,
        "estimate": forecast.estimate,
        "num_missing": max(0, preview.num_needed - preview.num_ready),
        "num_dry": min(NUM_SAMPLES, preview.num_ready),
        "excluded": sorted(preview.num_excluded.items()),
        "running": loop.running_update(policy),
        "editable": setting_fields(kind, preview.config, plan, typed, wrong),
        "fixed": _fixed(kind, preview.config),
        "problem": error.message if error else "",
    }
    if stage is None:
        context |= {
            "losses": [(name, title, name == kind) for name, title in LOSSES.items()],
            "presets": presets(kind),
            "chosen": chosen,
        }
    else:
        context |= {"options": option_fields(stage, preview.options, typed, wrong)}
    is_refused = error is not None and request.method == "POST"
    return render(request, "updates/trigger.html", context, status=error.status if error and is_refused else 200)


def _forecast(request: MemberRequest, policy: Policy) -> Forecast:
    """Of the kind asked for, else of the loss that the turns decide for; a second look only where that is not the plan.

    Raises InvalidInput.
    """
    if _kind(request) is not None:
        return forecast_update(policy, **_asked(request))
    found = forecast_update(policy)
    asked = _asked(request, found.preview.kind)
    return forecast_update(policy, **asked) if asked["overrides"] else found


def _plain_forecast(policy: Policy, kind: str | None) -> Forecast:
    """Of the kind as it stands; where it cannot be looked at without being told more, of nothing."""
    if kind not in STAGES:
        return forecast_update(policy, kind=kind)
    try:
        return forecast_update(policy, kind=kind)
    except InvalidInput as error:
        return nothing_ready(policy, kind, error.message)


def _wrong(error: StropError | None) -> str | None:
    """The name of the setting or option that was refused; a message of UpdateConfig begins with it."""
    if error is None:
        return None
    return error.field if error.field not in (None, "update_config") else error.message.split(" ")[0]


def _fixed(kind: str, config: UpdateConfig) -> list[reads.Setting]:
    shown = settings_shown(kind)
    return [one for one in reads.settings_of(config.to_json()) if one.name not in shown]


def _query(request: MemberRequest) -> QueryDict:
    return request.POST if request.method == "POST" else request.GET


def _kind(request: MemberRequest) -> str | None:
    """The stage or the loss asked for; None lets the turns decide."""
    asked = _query(request)
    if asked.get("kind") in STAGES:
        return asked["kind"]
    return asked["loss"] if asked.get("loss") in LOSSES else None


def _preset(request: MemberRequest) -> str:
    name = _query(request).get("preset", DEFAULT)
    return name if name in [one.name for one in presets(RL)] else DEFAULT


def _asked(request: MemberRequest, kind: str | None = None) -> dict[str, Any]:
    """Kind, options and overrides as `trigger_update` takes them; of an online update the preset, then what was typed.

    Raises InvalidInput for what is no number; the service checks more.
    """
    kind = kind or _kind(request)
    if kind in STAGES:
        sent = {"options": sent_options(STAGES[kind], request.POST), "overrides": sent_settings(kind, request.POST)}
        return {"kind": kind} | sent
    loss = kind or RL
    typed = sent_settings(RL, request.POST) | sent_settings(KTO, request.POST)
    return {"kind": kind, "overrides": dict(preset(loss, _preset(request)).settings) | typed}
