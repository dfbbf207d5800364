"""Updates: the list, starting one by hand, following one, stopping one."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console import charts
from console.access import MemberRequest, carry_out, member_required
from console.reads import overview as loop
from console.reads import policies
from console.reads import updates as reads
from registry.errors import InvalidInput, StropError
from registry.models import Policy, Role
from registry.services import find_policy
from rl_online.models import UpdateState
from rl_online.selectors import UpdateDetail, update_detail
from rl_online.services.plans import pause_learning, resume_learning
from rl_online.services.updates import cancel_update, preview_update, trigger_update

EDITABLE = ("learning_rate", "epochs", "minibatch_size", "mask_high", "mask_low", "base_kl")


@require_safe
@member_required()
def updates(request: MemberRequest) -> HttpResponse:
    policy = policies.chosen(policies.all_policies(), request.GET.get("policy"))
    return render(
        request,
        "updates/updates.html",
        {
            "policy": policy,
            "plan": policies.standing(policy).plan if policy else None,
            "page": reads.page_of_updates(request.GET.get("page"), request.GET.get("policy")),
        },
    )


@require_http_methods(["GET", "HEAD", "POST"])
@member_required(Role.ENGINEER)
def trigger(request: MemberRequest) -> HttpResponse:
    asked = request.POST if request.method == "POST" else request.GET
    policy = policies.chosen(policies.all_policies(), asked.get("policy"))
    if policy is None:
        return redirect("console:updates", request.member.project.slug)
    if request.method != "POST":
        return _form(request, policy)
    try:
        with transaction.atomic():
            run = trigger_update(policy, overrides=_overrides(request), actor=request.user.get_username())
    except StropError as error:
        return _form(request, policy, error)
    return redirect("console:update", request.member.project.slug, run.id)


@require_POST
@member_required(Role.ENGINEER)
def learning(request: MemberRequest) -> HttpResponse:
    policy = find_policy(request.POST.get("policy", ""))
    actor = request.user.get_username()

    def act() -> str:
        if request.POST.get("to") == "pause":
            pause_learning(policy, actor=actor)
            return f"Learning of {policy.name} is paused."
        resume_learning(policy, actor=actor)
        return f"{policy.name} learns again."

    return carry_out(request, act, back=reverse("console:updates", args=[request.member.project.slug]))


@require_safe
@member_required()
def update(request: MemberRequest, update: UUID) -> HttpResponse:
    detail = update_detail(update)
    run = detail.run
    return render(
        request,
        "updates/update.html",
        progress(detail)
        | {
            "curve_figures": [one for one in curve_figures(detail).values() if one["is_first"]],
            "more_figures": [one for one in curve_figures(detail).values() if not one["is_first"]],
            "num_skipped": reads.num_skipped(detail.metrics),
            "samples": reads.samples(run),
            "dropped": reads.dropped(run),
            "reports": detail.reports,
            "timings": sorted(run.timings.items(), key=_stage_order),
            "config": reads.effective(run),
        },
    )


@require_POST
@member_required(Role.ENGINEER)
def cancel(request: MemberRequest, update: UUID) -> HttpResponse:
    run = update_detail(update).run

    def act() -> str:
        cancel_update(run, actor=request.user.get_username())
        return f"{run} stops at its next step."

    return carry_out(request, act, back=reverse("console:update", args=[request.member.project.slug, run.id]))


def progress(detail: UpdateDetail) -> dict[str, Any]:
    """The head of the page, also rendered by its live stream."""
    is_live = not UpdateState(detail.run.state).is_over
    return {"run": detail.run, "is_live": is_live, "curves": reads.curves(detail.metrics)}


def curve_figures(detail: UpdateDetail) -> dict[str, dict[str, Any]]:
    """Name of the chart on the page -> title, words and figure; the few that are always there show "no data yet"."""
    found = {curve.name: curve for curve in reads.curves(detail.metrics)}
    names = list(found) or reads.FIRST[:4]
    return {
        f"curve-{name}": {
            "name": f"curve-{name}",
            "title": name.replace("_", " "),
            "is_first": name in reads.FIRST,
            "label": f"{name.replace('_', ' ')} by optimizer step",
            "data": charts.curve(found[name].steps, found[name].values, name=name, version=detail.run.version)
            if name in found
            else None,
        }
        for name in names
    }


def _form(request: MemberRequest, policy: Policy, error: StropError | None = None) -> HttpResponse:
    preview = preview_update(policy)
    settings = preview.config.to_json()
    sent = {name: request.POST.get(f"set-{name}", value) for name, value in settings.items()}
    return render(
        request,
        "updates/trigger.html",
        {
            "policy": policy,
            "preview": preview,
            "num_missing": max(0, preview.num_needed - preview.num_ready),
            "excluded": sorted(preview.num_excluded.items()),
            "running": loop.running_update(policy),
            "editable": [{"name": name, "value": sent[name]} for name in EDITABLE],
            "fixed": [(name, value) for name, value in settings.items() if name not in EDITABLE],
            "problem": error.message if error else "",
            "wrong": error.field if error else "",
        },
        status=error.status if error else 200,
    )


def _overrides(request: MemberRequest) -> dict[str, float]:
    """The settings sent with the form. Raises InvalidInput for what is no number; the service checks the rest."""
    sent = {name: request.POST[f"set-{name}"].strip() for name in EDITABLE if f"set-{name}" in request.POST}
    return {name: _number(name, text) for name, text in sent.items()}


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput(f"{name} is {text!r}; give a number", field=name) from error


def _stage_order(timing: tuple[str, float]) -> int:
    stages = list(charts.STAGE_COLOURS)
    return stages.index(timing[0]) if timing[0] in stages else len(stages)
