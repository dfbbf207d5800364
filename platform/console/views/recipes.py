"""Label recipes and reward specs: versions, what another one would say, a new one, and which is in force."""

from typing import Any, TypeVar

from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console import recipe_forms as forms
from console.access import MemberRequest, carry_out, member_required
from console.reads import recipes as reads
from console.timerange import PRESETS
from feedback.labels import Recipe
from feedback.services import recipes as label_services
from feedback.services.relabel import Relabelled, relabel
from registry.errors import NotFound, StropError
from registry.models import Policy, Role
from registry.services import find_policy
from rl_online.models import LearningPlan, RewardSpec
from rl_online.rewards.composite import parse_reward_spec
from rl_online.services import reward_specs as spec_services
from rl_online.services.reward_preview import Repaid, repay

T = TypeVar("T")
LOOKS = ("1d", "7d", "30d")  # how far back "what would it have said" may look
LOOK = "7d"


@require_safe
@member_required()
def recipes(request: MemberRequest) -> HttpResponse:
    return render(
        request,
        "recipes/recipes.html",
        {
            "labels": reads.label_recipes(),
            "specs": reads.reward_specs(),
            "label_activations": reads.activations(label_services.KIND),
            "spec_activations": reads.activations(spec_services.KIND),
        },
    )


@require_safe
@member_required()
def label_recipe(request: MemberRequest, version: int) -> HttpResponse:
    """`?look=7d` asks what it would have said."""
    found, in_force = label_services.find_recipe(version), label_services.recipe_in_force()
    look = _look(request.GET.get("look", ""))
    return render(
        request,
        "recipes/label_recipe.html",
        {
            "row": _row(reads.label_recipes(), version),
            "entries": forms.label_entries(found.body),
            "in_force": in_force,
            "against": reads.differences(in_force.body, found.body),
            "look": look,
            "looks": LOOKS,
            "relabelled": _relabel(in_force.body, found.body, look) if look else None,
        },
    )


@require_http_methods(["GET", "HEAD", "POST"])
@member_required(Role.ENGINEER)
def new_label_recipe(request: MemberRequest) -> HttpResponse:
    """Start from `?from=<version>`; a post looks (`do=look`, nothing is written) or makes the version."""
    in_force = label_services.recipe_in_force()
    if request.method != "POST":
        return _label_form(request, in_force.body if not request.GET.get("from") else _started_from(request).body)
    try:
        body = label_services.checked(forms.label_body(request.POST)).to_json()
        if request.POST.get("do") == "look":
            look = _look(request.POST.get("look", LOOK)) or LOOK
            found = _relabel(in_force.body, body, look)
            return _label_form(request, request.POST, {"relabelled": found, "look": look, "in_force": in_force})
        with transaction.atomic():
            made = label_services.create_recipe(body, actor=request.user.get_username(), reason=_reason(request))
    except StropError as error:
        return _label_form(request, request.POST, {"problem": error.message, "wrong": error.field}, error.status)
    return redirect("console:label-recipe", request.member.project.slug, made.version)


@require_POST
@member_required(Role.ENGINEER)
def activate_label_recipe(request: MemberRequest, version: int) -> HttpResponse:
    def act() -> str:
        label_services.activate_recipe(version, actor=request.user.get_username(), reason=_reason(request))
        return f"Label recipe {version} is in force. Turns that were labelled keep their label until more is heard."

    back = reverse("console:label-recipe", args=[request.member.project.slug, version])
    return carry_out(request, act, back=back)


@require_safe
@member_required()
def reward_spec(request: MemberRequest, name: str, version: int) -> HttpResponse:
    """`?against=<policy>&look=7d` asks what it would have paid instead of the spec that policy learns by."""
    found = spec_services.find_reward_spec(name, version)
    plans = list(LearningPlan.objects.select_related("policy", "reward_spec").order_by("policy__name"))
    plan = next((one for one in plans if one.policy.name == request.GET.get("against")), plans[0] if plans else None)
    look = _look(request.GET.get("look", ""))
    before = plan.reward_spec if plan else None
    return render(
        request,
        "recipes/reward_spec.html",
        {
            "row": _spec_row(found),
            "form": forms.spec_form(found.body, list(found.body.get("scorers", {}))),
            "plans": plans,
            "plan": plan,
            "against": reads.differences(before.body, found.body) if before else [],
            "look": look,
            "looks": LOOKS,
            "repaid": _repay(before.body, found.body, look) if look and before else None,
        },
    )


@require_http_methods(["GET", "HEAD", "POST"])
@member_required(Role.ENGINEER)
def new_reward_spec(request: MemberRequest, name: str) -> HttpResponse:
    """Start from `?from=<version>`, else the newest; a post looks (`do=look`) or makes the version."""
    newest = spec_services.latest_reward_spec(name)
    scorers = reads.scorers_offered(newest.body)
    if request.method != "POST":
        start = request.GET.get("from", "")
        spec = spec_services.find_reward_spec(name, int(start)) if start.isdigit() and len(start) < 9 else newest
        return _spec_page(request, newest, forms.spec_form(spec.body, scorers))
    try:
        body = forms.spec_body(request.POST, scorers, newest.body)
        spec_services.checked(body)
        if request.POST.get("do") == "look":
            look = _look(request.POST.get("look", LOOK)) or LOOK
            before = _learnt_by(newest)
            context = {"repaid": _repay(before.body, body, look), "look": look, "before": before}
            return _spec_page(request, newest, forms.sent_form(request.POST, scorers), context)
        with transaction.atomic():
            made = spec_services.create_reward_spec(
                body, name=name, actor=request.user.get_username(), reason=_reason(request)
            )
    except StropError as error:
        form = forms.sent_form(request.POST, scorers, error.field or "")
        return _spec_page(request, newest, form, {"problem": error.message, "wrong": error.field}, error.status)
    return redirect("console:reward-spec", request.member.project.slug, made.name, made.version)


@require_POST
@member_required(Role.ENGINEER)
def activate_reward_spec(request: MemberRequest, name: str, version: int) -> HttpResponse:
    spec = spec_services.find_reward_spec(name, version)
    policy: Policy = find_policy(request.POST.get("policy", "").replace("\x00", ""))

    def act() -> str:
        spec_services.activate_reward_spec(policy, spec, actor=request.user.get_username(), reason=_reason(request))
        return f"{policy.name} learns by {spec} from its next batch on."

    back = reverse("console:reward-spec", args=[request.member.project.slug, name, version])
    return carry_out(request, act, back=back)


def _label_form(
    request: MemberRequest, values: Any, context: dict[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    context = context or {}
    base = {
        "entries": forms.label_entries(values, context.get("wrong") or ""),
        "reason": request.POST.get("reason", ""),
        "look": LOOK,
        "looks": LOOKS,
    }
    return render(request, "recipes/new_label_recipe.html", base | context, status=status)


def _spec_page(
    request: MemberRequest,
    newest: RewardSpec,
    form: forms.SpecForm,
    context: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    base = {"newest": newest, "form": form, "reason": request.POST.get("reason", ""), "look": LOOK, "looks": LOOKS}
    return render(request, "recipes/new_reward_spec.html", base | (context or {}), status=status)


def _learnt_by(newest: RewardSpec) -> RewardSpec:
    """The version that a policy learns by now, the newest of them; without any the newest version."""
    used = RewardSpec.objects.filter(name=newest.name, pk__in=LearningPlan.objects.values("reward_spec"))
    return used.order_by("-version").first() or newest


def _started_from(request: MemberRequest) -> Any:
    text = request.GET["from"]
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise NotFound("no such label recipe")
    return label_services.find_recipe(int(text))


def _relabel(before: dict[str, Any], after: dict[str, Any], look: str) -> Relabelled:
    now = timezone.now()
    return relabel(Recipe(**before), Recipe(**after), since=now - PRESETS[look], until=now)


def _repay(before: dict[str, Any], after: dict[str, Any], look: str) -> Repaid:
    now = timezone.now()
    return repay(parse_reward_spec(before), parse_reward_spec(after), since=now - PRESETS[look], until=now)


def _look(text: str) -> str:
    return text if text in LOOKS else ""


def _reason(request: MemberRequest) -> str:
    return request.POST.get("reason", "").replace("\x00", "").strip()[:2000]


def _row(rows: list[reads.RecipeRow], version: int) -> reads.RecipeRow:
    return _first([row for row in rows if row.recipe.version == version])


def _spec_row(spec: RewardSpec) -> reads.SpecRow:
    return _first([row for row in reads.reward_specs() if row.spec.pk == spec.pk])


def _first(rows: list[T]) -> T:
    if not rows:
        raise NotFound(f"only the newest {reads.MAX_VERSIONS} versions are shown")
    return rows[0]
