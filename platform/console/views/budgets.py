"""Budgets: what may be spent in a day or month, who is told at which share, and what a spent one stops."""

from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console import stale_forms
from console.access import MemberRequest, member_required
from registry.budgets import (
    DEFAULT_ALERTS,
    add_budget,
    change_budget,
    facts,
    locked_budget,
    parse_percents,
    remove_budget,
)
from registry.errors import StropError
from registry.models import Budget, Role
from registry.price_cards import parse_price
from rl_online.spending.budgets import standings

TITLES = {"usd": "Amount", "alert_percents": "Alerts", "stops": "Stops"}


@require_safe
@member_required()
def budgets(request: MemberRequest) -> HttpResponse:
    return _page(request)


@require_POST
@member_required(Role.OWNER)
def add(request: MemberRequest) -> HttpResponse:
    try:
        with transaction.atomic():
            budget = add_budget(
                request.POST.get("kind", ""), request.POST.get("period", ""),
                actor=request.user.get_username(), **_sent(request),
            )  # fmt: skip
    except StropError as error:
        return _page(request, error)
    messages.success(request, f"{str(budget).capitalize()} has a budget.")
    return redirect("console:budgets", request.member.project.slug)


@require_POST
@member_required(Role.OWNER)
def change(request: MemberRequest, budget: int) -> HttpResponse:
    """Saves, or removes where the button says so; what is refused or outdated is said on the page."""
    try:
        with transaction.atomic():
            now = locked_budget(budget)
            stale_forms.check(request.POST, facts(now), TITLES)
            if request.POST.get("do") == "remove":
                remove_budget(budget, actor=request.user.get_username())
            else:
                change_budget(budget, actor=request.user.get_username(), **_sent(request))
    except StropError as error:
        return _page(request, error, of=budget)
    messages.success(request, f"Budget of {now}: {'removed' if request.POST.get('do') == 'remove' else 'changed'}.")
    return redirect("console:budgets", request.member.project.slug)


def _sent(request: MemberRequest) -> dict[str, Any]:
    """Raises InvalidInput."""
    usd: Decimal | None = parse_price(request.POST.get("usd", ""), field="usd")
    return {
        "usd": usd,
        "alert_percents": parse_percents(request.POST.get("alert_percents", "")),
        "stops": request.POST.get("stops") == "on",
    }


def _page(request: MemberRequest, error: StropError | None = None, *, of: int | None = None) -> HttpResponse:
    found = standings(timezone.now())
    last = next((str(one.budget) for one in found if one.budget.pk == of), "")
    context = {
        "plain": found,
        "standings": [(one, facts(one.budget), stale_forms.seen(facts(one.budget))) for one in found],
        "kinds": Budget.Kind.values,
        "periods": Budget.Period.values,
        "alerts": ", ".join(map(str, DEFAULT_ALERTS)),
        "sent": request.POST if error and of is None else {},
        "refused": of,
        **stale_forms.said(error, stale_forms.last_save("budget", last) if last else None),
    }
    return render(request, "costs/budgets.html", context, status=error.status if error else 200)
