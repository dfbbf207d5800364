"""Starting an update by hand: what it would learn from and take, its settings, a dry run on a few samples."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.failures import advise
from console.reads import overview as loop
from console.reads import policies
from console.reads import updates as reads
from registry.errors import InvalidInput, NotFound, StropError
from registry.models import Policy, Role
from rl_online.collecting import KTO, RL
from rl_online.models import DryRun, DryRunState, LearningPlan
from rl_online.rewards.presets import DEFAULT, preset, presets
from rl_online.rewards.update_config import UpdateConfig
from rl_online.services.dry_runs import NUM_SAMPLES, cancel_dry_run, find_dry_run, start_dry_run
from rl_online.services.updates import Forecast, forecast_update, trigger_update

LOSSES = {RL: "ratio loss", KTO: "KTO"}
EDITABLE = {
    RL: ("learning_rate", "epochs", "minibatch_size", "mask_high", "mask_low", "behaviour_pull", "base_kl"),
    KTO: ("learning_rate", "epochs", "minibatch_size", "kto_beta", "kto_desirable", "kto_undesirable"),
}
ALSO_EDITABLE = ("max_lag", "heldout_samples", "micro_batch_tokens")


@require_http_methods(["GET", "HEAD", "POST"])
@member_required(Role.ENGINEER)
def trigger(request: MemberRequest) -> HttpResponse:
    asked = request.POST if request.method == "POST" else request.GET
    policy = policies.chosen(policies.all_policies(), asked.get("policy"))
    if policy is None or policies.standing(policy).plan is None:
        return redirect("console:updates", request.member.project.slug)
    if request.method != "POST":
        return _form(request, policy)
    try:
        with transaction.atomic():
            run = trigger_update(
                policy, overrides=_overrides(request), kind=_kind(request), actor=request.user.get_username()
            )
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
            row = start_dry_run(
                policy, overrides=_overrides(request), kind=_kind(request), actor=request.user.get_username()
            )
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
    asked = request.POST if request.method == "POST" else request.GET
    kind, chosen = _kind(request), _preset(request)
    try:
        forecast = _forecast(policy, kind, chosen, _sent(request))
    except InvalidInput as invalid:  # a value the trainer would not take: the form stands with what was typed
        error = error or invalid
        forecast = forecast_update(policy, kind=kind)
    preview, kind = forecast.preview, forecast.preview.kind
    return render(
        request,
        "updates/trigger.html",
        {
            "policy": policy,
            "policies": policies.all_policies(),
            "kind": kind,
            "losses": [(name, title, name == kind) for name, title in LOSSES.items()],
            "presets": presets(kind),
            "chosen": chosen,
            "chosen_words": preset(kind, chosen).words,
            "preview": preview,
            "estimate": forecast.estimate,
            "num_missing": max(0, preview.num_needed - preview.num_ready),
            "num_dry": min(NUM_SAMPLES, preview.num_ready),
            "excluded": sorted(preview.num_excluded.items()),
            "running": loop.running_update(policy),
            "editable": _fields(policy, kind, preview.config, asked, error),
            "fixed": _fixed(kind, preview.config),
            "problem": error.message if error else "",
        },
        status=error.status if error else 200,
    )


def _forecast(policy: Policy, kind: str | None, chosen: str, sent: dict[str, float]) -> Forecast:
    """Of the loss asked for, else of the one that the turns decide for; a second look only where that is not the plan.

    Raises InvalidInput.
    """
    if kind is None:
        found = forecast_update(policy)
        kind = found.preview.kind
        if not _preset_settings(kind, chosen) | sent:
            return found
    return forecast_update(policy, kind=kind, overrides=_preset_settings(kind, chosen) | sent)


def _fields(
    policy: Policy, kind: str, config: UpdateConfig, asked: Any, error: StropError | None
) -> list[dict[str, Any]]:
    """Each setting that may be typed over: what is meant, what the plan says, the default."""
    settings, defaults = config.to_json(), UpdateConfig().to_json()
    plan = defaults | LearningPlan.objects.get(policy=policy).update_config
    return [
        {
            "name": name,
            "value": asked.get(f"set-{name}", reads.written(settings[name])),
            "plan": reads.written(plan[name]),
            "default": reads.written(defaults[name]),
            "is_changed": settings[name] != plan[name],
            "is_wrong": error is not None and (error.field == name or error.message.startswith(f"{name} ")),
        }
        for name in (*EDITABLE[kind], *ALSO_EDITABLE)
    ]


def _fixed(kind: str, config: UpdateConfig) -> list[reads.Setting]:
    shown = {*EDITABLE[kind], *ALSO_EDITABLE}
    return [one for one in reads.settings_of(config.to_json()) if one.name not in shown]


def _kind(request: MemberRequest) -> str | None:
    """The loss asked for; None lets the turns decide."""
    asked = request.POST if request.method == "POST" else request.GET
    return asked["loss"] if asked.get("loss") in LOSSES else None


def _preset(request: MemberRequest) -> str:
    asked = request.POST if request.method == "POST" else request.GET
    return asked["preset"] if asked.get("preset") in [one.name for one in presets(RL)] else DEFAULT


def _preset_settings(kind: str | None, name: str) -> dict[str, Any]:
    return dict(preset(kind or RL, name).settings)


def _overrides(request: MemberRequest) -> dict[str, Any]:
    """The preset with the settings sent on top. Raises InvalidInput for what is no number; the service checks more."""
    return _preset_settings(_kind(request), _preset(request)) | _sent(request)


def _sent(request: MemberRequest) -> dict[str, float]:
    names = {*EDITABLE[RL], *EDITABLE[KTO], *ALSO_EDITABLE}
    sent = {name: request.POST[f"set-{name}"].strip() for name in names if f"set-{name}" in request.POST}
    return {name: _number(name, text) for name, text in sent.items()}


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput(f"{name} is {text[:40]!r}; give a number", field=name) from error
