"""Budgets of a project: set, changed, removed, and whether a spent one stops something. Inside a tenant.

What was spent is reckoned by who can read it (`rl_online.spending.budgets`); here is only what people decided, and
until when a budget is spent.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.utils import timezone

from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import Budget
from registry.services import audit

LARGEST = Decimal(10) ** 9
MAX_ALERTS = 6
DEFAULT_ALERTS = (50, 80, 100)


def period_of(period: str, now: datetime) -> tuple[datetime, datetime]:
    """The UTC day or month that `now` is in, [start, end)."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == Budget.Period.DAY:
        return midnight, midnight + timedelta(days=1)
    first = midnight.replace(day=1)
    return first, (first + timedelta(days=32)).replace(day=1)


def add_budget(
    kind: str, period: str, *, usd: Decimal | None, alert_percents: Sequence[int], stops: bool, actor: str
) -> Budget:
    """Raises InvalidInput, or Conflict where there is one of this kind and period."""
    if kind not in Budget.Kind.values or period not in Budget.Period.values:
        raise InvalidInput(f"found {kind[:20]!r} a {period[:20]!r}", field="kind")
    values = _checked(kind, usd, alert_percents, stops)
    if Budget.objects.filter(kind=kind, period=period).exists():
        raise Conflict(f"there is a budget of {kind} a {period} already; change that one", field="kind")
    budget = Budget.objects.create(kind=kind, period=period, changed_by=actor, **values)
    audit("add", "budget", str(budget), actor=actor, after=facts(budget))
    return budget


def change_budget(
    budget_id: int, *, usd: Decimal | None, alert_percents: Sequence[int], stops: bool, actor: str
) -> Budget:
    """What was spent is looked at anew: a budget that is raised no longer stops. Raises NotFound, InvalidInput."""
    budget = locked_budget(budget_id)
    before = facts(budget)
    for name, value in _checked(budget.kind, usd, alert_percents, stops).items():
        setattr(budget, name, value)
    budget.changed_by, budget.spent_until = actor, None
    budget.save()
    audit("change", "budget", str(budget), actor=actor, before=before, after=facts(budget))
    return budget


def remove_budget(budget_id: int, *, actor: str) -> None:
    """Raises NotFound."""
    budget = locked_budget(budget_id)
    audit("remove", "budget", str(budget), actor=actor, before=facts(budget))
    budget.delete()


def locked_budget(budget_id: int) -> Budget:
    budget = Budget.objects.select_for_update().filter(pk=budget_id).first()
    if budget is None:
        raise NotFound("no such budget")
    return budget


def facts(budget: Budget) -> dict[str, object]:
    """What people decide of it."""
    percents = ", ".join(map(str, budget.alert_percents))
    return {"usd": f"{budget.usd.normalize():f}", "alert_percents": percents, "stops": budget.stops}


def stopped(kind: str) -> str:
    """Why nothing more of this kind may be spent; empty when it may. One query."""
    spent = Budget.objects.filter(
        stops=True, kind__in=(kind, Budget.Kind.TOTAL), spent_until__gt=timezone.now()
    ).order_by("spent_until")
    budget = spent.first()
    if budget is None:
        return ""
    assert budget.spent_until is not None
    return (
        f"the project's budget of ${budget.usd.normalize():f} for {budget} is spent, "
        f"until {budget.spent_until:%Y-%m-%d %H:%M} UTC"
    )


def parse_percents(text: str) -> list[int]:
    """Example: "50, 80 100" -> [50, 80, 100]. Raises InvalidInput."""
    words = text.replace(",", " ").replace("%", " ").split()
    if not all(word.isascii() and word.isdigit() and len(word) < 5 for word in words):
        raise InvalidInput(f"found {text[:40]!r}; write percents, e.g. 50, 80, 100", field="alert_percents")
    return sorted({int(word) for word in words})


def _checked(kind: str, usd: Decimal | None, alert_percents: Sequence[int], stops: bool) -> dict[str, object]:
    if usd is None or not usd.is_finite() or not 0 < usd < LARGEST or usd != round(usd, 4):
        raise InvalidInput("a budget is an amount above 0, with 4 decimals at most", field="usd")
    if len(alert_percents) > MAX_ALERTS or not all(1 <= percent <= 1000 for percent in alert_percents):
        raise InvalidInput(f"at most {MAX_ALERTS} alerts, each from 1 to 1000 percent", field="alert_percents")
    if stops and kind == Budget.Kind.INFERENCE:
        raise InvalidInput("answers to users are never stopped; a budget of inference only tells", field="stops")
    return {"usd": usd, "alert_percents": sorted(set(alert_percents)), "stops": stops}
