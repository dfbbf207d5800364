"""Updates: the list, the rhythm they start by, one with its live progress, what can be done with it, two compared."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console import plots, stale_forms
from console.access import MemberRequest, carry_out, member_required
from console.failures import advise
from console.listing import Found, show_list
from console.lists.updates import UPDATES
from console.reads import corrections as correction_reads
from console.reads import overview as loop
from console.reads import policies, update_samples
from console.reads import updates as reads
from console.reads.next_update import look
from console.stages.table import stage_part
from console.stale_forms import Outdated
from registry.errors import InvalidInput, NotFound
from registry.models import Policy, Role
from registry.services import find_policy
from rl_online.models import LearningPlan, Promotion, UpdateRun, UpdateState
from rl_online.selectors import UpdateDetail, update_detail
from rl_online.services.plans import change_plan, pause_learning, resume_learning
from rl_online.services.updates import cancel_update, replay_update

RHYTHM = {  # fields of the plan that its form changes -> what they are called
    "every_turns": "Every N labelled turns",
    "every_minutes": "Or after T minutes",
    "min_turns": "Never with fewer than",
    "max_turns": "At most, newest first",
    "promotion": "A candidate that passes",
}


@require_safe
@member_required()
def updates(request: MemberRequest) -> HttpResponse:
    known = policies.all_policies()
    policy = policies.chosen(known, request.GET.get("policy") or _policy_of_query(request, known))
    standing = policies.standing(policy) if policy else None
    plan = standing.plan if standing else None

    def context(found: Found) -> dict[str, Any]:
        frame = {"policy": policy, "policies": known, "plan": plan}
        return frame | (_rhythm_form(_rhythm(plan)) if plan else {})

    return show_list(request, UPDATES, context=context, template="updates/updates.html")


def _policy_of_query(request: MemberRequest, known: list[Policy]) -> str | None:
    """On the list's further pages the chosen policy stands in the query: `policy:editor`."""
    terms = [term for term in UPDATES.asked(request).query.terms if term.field.name == "policy"]
    values = [value for term in terms if not term.is_negated for value in term.values]
    return values[0] if len(values) == 1 and values[0] in {policy.name for policy in known} else None


@require_safe
@member_required()
def next_update(request: MemberRequest) -> HttpResponse:
    """How far the next update of a policy is; asked for apart, because it looks at every turn that is ready."""
    policy = policies.chosen(policies.all_policies(), request.GET.get("policy"))
    standing = policies.standing(policy) if policy else None
    running = loop.running_update(policy) if policy else None
    found = look(policy, standing, running, now=timezone.now()) if policy and standing else None
    return render(request, "updates/_next.html", {"next": found, "plan": standing.plan if standing else None})


@require_safe
@member_required()
def corrections(request: MemberRequest) -> HttpResponse:
    """How many were taught, are held, are spent and wait; asked for apart, because it looks at what changed."""
    policy = policies.chosen(policies.all_policies(), request.GET.get("policy"))
    found = correction_reads.corrections(policy) if policy else None
    return render(request, "updates/_corrections.html", {"found": found})


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

    return carry_out(request, act, back=_list(request))


@require_POST
@member_required(Role.ENGINEER)
def schedule(request: MemberRequest) -> HttpResponse:
    """When the next updates start by themselves, and who carries the gate's word out."""
    policy = find_policy(request.POST.get("policy", ""))
    minutes = request.POST.get("every_minutes", "").strip()
    try:
        with transaction.atomic():
            now = LearningPlan.objects.select_for_update().filter(policy=policy).first()
            if now is None:
                raise NotFound(f"{policy.name} has no plan to learn by")
            stale_forms.check(request.POST, _rhythm(now), RHYTHM)
            plan = change_plan(
                policy,
                actor=request.user.get_username(),
                every_turns=_whole(request, "every_turns"),
                min_turns=_whole(request, "min_turns"),
                max_turns=_whole(request, "max_turns"),
                every_minutes=_whole(request, "every_minutes") if minutes else None,
                promotion=request.POST.get("promotion", ""),
            )
    except (InvalidInput, Outdated) as error:
        return stale_forms.refused(
            request,
            error,
            form="updates/_rhythm.html",
            title=f"Rhythm of {policy.name}",
            back=_list_of(request, policy),
            saved=stale_forms.last_save("learning plan", policy.name),
            policy=policy,
            **_rhythm_form(_rhythm(LearningPlan.objects.get(policy=policy)), request.POST),
        )
    also = f" or after {plan.every_minutes} min" if plan.every_minutes else ""
    messages.success(request, f"{policy.name} learns every {plan.every_turns} labelled turns{also}.")
    return redirect(_list_of(request, policy))


@require_safe
@member_required()
def update(request: MemberRequest, update: UUID) -> HttpResponse:
    detail = update_detail(update)
    run = detail.run
    figures = curve_figures(detail).values()
    return render(
        request,
        "updates/update.html",
        progress(detail)
        | stage_part(run)
        | {
            "curve_figures": [one for one in figures if one["is_first"]],
            "more_figures": [one for one in figures if not one["is_first"]],
            "num_skipped": reads.num_skipped(detail.metrics),
            "samples": update_samples.strongest(run.batch),
            "dropped": reads.dropped(run),
            "corrections": correction_reads.sent_with(run),
            "reports": detail.reports,
            "timings": sorted(run.timings.items(), key=_stage_order),
            "settings": reads.settings_of(run.config),
            "others": reads.others(run),
            "can_replay": run.checkpoint_id is not None and run.batch.files_deleted_at is None,
        },
    )


@require_safe
@member_required()
def samples(request: MemberRequest, update: UUID) -> HttpResponse:
    run = update_detail(update).run
    page = update_samples.page_of_samples(run.batch, request.GET.get("page"))
    return render(request, "updates/samples.html", {"run": run, "page": page, "samples": page.object_list})


@require_POST
@member_required(Role.ENGINEER)
def cancel(request: MemberRequest, update: UUID) -> HttpResponse:
    run = update_detail(update).run

    def act() -> str:
        cancel_update(run, actor=request.user.get_username())
        return f"{run} stops at its next step."

    return carry_out(request, act, back=_page(request, run))


@require_POST
@member_required(Role.ENGINEER)
def replay(request: MemberRequest, update: UUID) -> HttpResponse:
    run = update_detail(update).run
    made: list[UpdateRun] = []

    def act() -> str:
        made.append(replay_update(run, actor=request.user.get_username()))
        return f"{made[0]} learns from the same batch again. It is a replay: only a person promotes it."

    response = carry_out(request, act, back=_page(request, run))
    if made:
        response["Location"] = _page(request, made[0])
    return response


@require_safe
@member_required()
def compare(request: MemberRequest) -> HttpResponse:
    """Two updates by their ids, `left` and `right`."""
    left, right = (_found(request.GET.get(side, "")) for side in ("left", "right"))
    found = reads.compare(left, right)
    return render(
        request,
        "updates/compare.html",
        {"found": found, "left": left, "right": right, "num_different": sum(row[3] for row in found.settings)},
    )


def progress(detail: UpdateDetail) -> dict[str, Any]:
    """The head of the page, also rendered by its live stream."""
    run = detail.run
    state = UpdateState(run.state)
    return {
        "run": run,
        "is_live": not state.is_over and state != UpdateState.WAITING,
        "curves": reads.curves(detail.metrics),
        "num_before": reads.queue_position("run", run.id) if state == UpdateState.QUEUED else None,
        "proof": reads.proof(run),
        "report": detail.reports[0] if detail.reports else None,
        "advice": advise(run.error) if state == UpdateState.FAILED else None,
        "are_turns_free": state == UpdateState.FAILED and not run.batch.samples.exists(),
    }


def curve_figures(detail: UpdateDetail) -> dict[str, dict[str, Any]]:
    """Name of the chart on the page -> title, words and figure; the few that are always there show "no data yet"."""
    found = {curve.name: curve for curve in reads.curves(detail.metrics)}
    names = list(found) or list(reads.FIRST[:4])
    return {
        f"curve-{name}": {
            "name": f"curve-{name}",
            "title": name.replace("_", " "),
            "is_first": reads.is_first(name),
            "label": f"{name.replace('_', ' ')} by optimizer step",
            "data": plots.curve(
                found[name].steps,
                found[name].values,
                name=name,
                version=detail.run.version,
                heldout=found[name].heldout,
            )
            if name in found
            else None,
        }
        for name in names
    }


def _list(request: MemberRequest) -> str:
    return reverse("console:updates", args=[request.member.project.slug])


def _list_of(request: MemberRequest, policy: Policy) -> str:
    return f"{_list(request)}?{urlencode({'policy': policy.name})}"


def _rhythm(plan: LearningPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in RHYTHM}


def _rhythm_form(now: dict[str, Any], sent: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Filled with what was sent, else with what is."""
    filled = now if sent is None else {name: sent.get(name, "") for name in RHYTHM}
    return {"rhythm": filled, "seen": stale_forms.seen(now), "promotions": Promotion.choices}


def _page(request: MemberRequest, run: UpdateRun) -> str:
    return reverse("console:update", args=[request.member.project.slug, run.id])


def _found(text: str) -> UpdateRun:
    try:
        return update_detail(UUID(text)).run
    except ValueError:
        raise NotFound(f"no update {text[:60]!r}") from None


def _whole(request: MemberRequest, name: str) -> int:
    text = request.POST.get(name, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise InvalidInput(f"found {text[:40]!r}; give a whole number", field=name)
    return int(text)


def _stage_order(timing: tuple[str, float]) -> int:
    stages = list(plots.STAGE_COLOURS)
    return stages.index(timing[0]) if timing[0] in stages else len(stages)
