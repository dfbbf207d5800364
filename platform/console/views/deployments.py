"""Deployments: what an alias serves, a canary's share of it, the way back."""

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console import gate_rules as gate_rules_form
from console import stale_forms
from console.access import MemberRequest, carry_out, member_required
from console.reads import deployments as reads
from console.reads import experiments, policies
from console.stale_forms import Outdated
from console.timerange import TimeRange
from registry.errors import InvalidInput, NotFound
from registry.models import Policy, Role
from registry.services import find_checkpoint, find_policy
from rl_online.models import LearningPlan
from rl_online.services.canaries import MAX_SHARE, change_canary_share, start_canary, stop_canary
from rl_online.services.plans import change_plan


@require_safe
@member_required()
def deployments(request: MemberRequest) -> HttpResponse:
    known = policies.all_policies()
    policy = policies.chosen(known, request.GET.get("policy"))
    time_range = TimeRange.of(request, "1d")
    deployment = reads.deployment_of(policy) if policy else None
    targets = reads.targets(deployment, time_range) if deployment else []
    return render(
        request,
        "deployments/deployments.html",
        {
            "policies": known,
            "policy": policy,
            "time_range": time_range,
            "deployment": deployment,
            "targets": targets,
            **(_rules_form(deployment.policy) if deployment else {}),
            "trial": experiments.trial_of(deployment) if deployment else None,
            "bar": reads.bar(targets),
            "others": reads.answered_by_others(deployment, time_range, targets) if deployment else {},
            "candidates": reads.candidates(policy) if policy else [],
            "retired": reads.retired(policy) if policy else [],
            "events": reads.history(policy) if policy else [],
            "max_percent": round(100 * MAX_SHARE),
            "percent": round(100 * deployment.canary_share) if deployment and deployment.canary else 5,
        },
    )


@require_POST
@member_required(Role.ENGINEER)
def canary_start(request: MemberRequest, policy: str) -> HttpResponse:
    found = find_policy(policy)

    def act() -> str:
        checkpoint = find_checkpoint(request.POST.get("checkpoint", ""))
        if checkpoint.policy_id != found.id:
            raise InvalidInput(f"{checkpoint} is not of {found.name}", field="checkpoint")
        share = _share(request)
        start_canary(checkpoint, share=share, actor=request.user.get_username(), reason=_reason(request))
        return f"{checkpoint} answers {share:.0%} of the users once an engine holds it."

    return carry_out(request, act, back=_page(request, found))


@require_POST
@member_required(Role.ENGINEER)
def canary_share(request: MemberRequest, policy: str) -> HttpResponse:
    found = find_policy(policy)

    def act() -> str:
        share = _share(request)
        actor = request.user.get_username()
        if share == 0:
            deployment = stop_canary(found, actor=actor, reason=_reason(request))
            return f"{deployment.checkpoint} answers everyone again."
        deployment = change_canary_share(found, share=share, actor=actor, reason=_reason(request))
        return f"{deployment.canary} answers {share:.0%} of the users."

    return carry_out(request, act, back=_page(request, found))


@require_POST
@member_required(Role.ENGINEER)
def canary_stop(request: MemberRequest, policy: str) -> HttpResponse:
    found = find_policy(policy)

    def act() -> str:
        deployment = stop_canary(found, actor=request.user.get_username(), reason=_reason(request))
        return f"{deployment.checkpoint} answers everyone again."

    return carry_out(request, act, back=_page(request, found))


@require_POST
@member_required(Role.ENGINEER)
def gate_rules(request: MemberRequest, policy: str) -> HttpResponse:
    """What a checkpoint of this policy has to show, on problems and on users."""
    found = find_policy(policy)
    try:
        with transaction.atomic():
            plan = LearningPlan.objects.select_for_update().filter(policy=found).first()
            if plan is None:
                raise NotFound(f"{found.name} has no plan to learn by")
            stale_forms.check(request.POST, gate_rules_form.rules(plan), gate_rules_form.TITLES)
            changed = gate_rules_form.changes(plan, request.POST)
            change_plan(found, actor=request.user.get_username(), **changed)
    except (InvalidInput, Outdated) as error:
        return stale_forms.refused(
            request,
            error,
            form="deployments/_rules.html",
            title=f"What a checkpoint of {found.name} has to show",
            back=_page(request, found),
            saved=stale_forms.last_save("learning plan", found.name),
            policy=found,
            **_rules_form(found, request.POST),
        )
    messages.success(request, f"The next checkpoint of {found.name} is judged by these rules.")
    return redirect(_page(request, found))


def _rules_form(policy: Policy, sent: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Filled with what was sent, else with what holds; nothing for a policy without a plan."""
    plan = LearningPlan.objects.filter(policy=policy).first()
    if plan is None:
        return {}
    now = gate_rules_form.rules(plan)
    filled = now if sent is None else {name: sent.get(name, "") for name in now}
    judges = gate_rules_form.pairwise_judges()
    return {"rules": filled, "seen": stale_forms.seen(now), "judges": judges}


def _page(request: MemberRequest, policy: Policy) -> str:
    return reverse("console:deployments", args=[request.member.project.slug]) + f"?policy={policy.name}"


def _reason(request: MemberRequest) -> str:
    return request.POST.get("reason", "").strip()


def _share(request: MemberRequest) -> float:
    """Percent of users in the form, a share for the service."""
    text = request.POST.get("percent", "").strip()
    try:
        return float(text) / 100
    except ValueError:
        raise InvalidInput(f"found {text[:40]!r}; give percent of the users", field="percent") from None
