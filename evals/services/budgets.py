"""What a judge may spend on a day (UTC), and what it has spent: asked before every request, told after it.

Requests under way when the limit is reached are finished, so a day may end a little over it. A limit in dollars cannot
be kept for a model without a price: it is not asked at all, and says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from django.db.models import Count, Q, Sum
from django.utils import timezone

from evals.judging.completer import Completer, Completion, CompletionFailed, Prompt
from evals.models import CanaryRun, JudgeCall, JudgeVersion, VerdictKind
from evals.services.judges import duty_of
from registry.budgets import stopped
from registry.models import Budget as ProjectBudget


class BudgetSpent(CompletionFailed):
    """Not asked: the day's budget is spent, or cannot be kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The limits of a day; None is no limit."""

    usd: Decimal | None = None
    calls: int | None = None

    @property
    def is_limited(self) -> bool:
        return self.usd is not None or self.calls is not None


@dataclass(kw_only=True, slots=True)
class Spent:
    """Of one day. Requests without a reply are no calls, a cached reply is none either."""

    calls: int = 0
    unpriced: int = 0
    usd: Decimal = Decimal(0)  # of the priced ones

    def refusal(self, budget: Budget) -> str:
        """Why no further request may be made; empty when one may."""
        if budget.calls is not None and self.calls >= budget.calls:
            return f"the day's budget of {budget.calls} calls is spent"
        if budget.usd is not None and self.unpriced:
            return "the budget is in dollars and the model has no price; add a price card or limit the calls"
        if budget.usd is not None and self.usd >= budget.usd:
            return f"the day's budget of ${budget.usd.normalize():f} is spent"
        return ""


class Budgeted:
    """A completer that stops at a budget."""

    def __init__(self, completer: Completer, budget: Budget, spent: Spent) -> None:
        self._completer, self._budget, self._spent = completer, budget, spent

    async def __aenter__(self) -> Self:
        await self._completer.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._completer.__aexit__(*error)

    async def complete(self, prompt: Prompt, sampling: Mapping[str, Any]) -> Completion:
        """Raises BudgetSpent, which is a CompletionFailed, once a limit is reached."""
        if refusal := self._spent.refusal(self._budget):
            raise BudgetSpent(refusal)
        self._spent.calls += 1  # before the reply: a hundred at once must not all pass
        try:
            completion = await self._completer.complete(prompt, sampling)
        except CompletionFailed:
            self._spent.calls -= 1
            raise
        if completion.cost_usd is None:
            self._spent.unpriced += 1
        else:
            self._spent.usd += completion.cost_usd
        return completion


class Stopped:
    """A completer that asks nothing, because the project's own budget is spent."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def complete(self, prompt: Prompt, sampling: Mapping[str, Any]) -> Completion:
        raise BudgetSpent(self._reason)


def within_budget(version: JudgeVersion, completer: Completer) -> Completer:
    """The completer, stopping at what is left of the judge's day; none at all once the project's budget says stop.

    Inside a tenant.
    """
    if reason := stopped(ProjectBudget.Kind.JUDGING):
        return Stopped(reason)
    budget = budget_of(version)
    return Budgeted(completer, budget, spent_today(version)) if budget.is_limited else completer


def why_stopped(version: JudgeVersion) -> str:
    """Why it may be asked no more today, for the project's budget or its own; empty when it may. Inside a tenant."""
    if reason := stopped(ProjectBudget.Kind.JUDGING):
        return reason
    budget = budget_of(version)
    return spent_today(version).refusal(budget) if budget.is_limited else ""


def budget_of(version: JudgeVersion) -> Budget:
    duty = duty_of(version)
    return Budget(usd=duty.daily_usd, calls=duty.daily_calls)


def spent_today(version: JudgeVersion) -> Spent:
    """Since midnight UTC: comparisons, ratings, anchors and canaries. Two queries, inside a tenant."""
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    made = JudgeCall.objects.filter(judge=version, created_at__gte=midnight, is_cached=False)
    calls = made.exclude(verdict=VerdictKind.ERROR).aggregate(
        n=Count("id"), unpriced=Count("id", filter=Q(cost_usd=None)), usd=Sum("cost_usd")
    )
    runs = CanaryRun.objects.filter(judge=version, finished_at__gte=midnight).aggregate(
        n=Sum("num_calls"), unpriced=Sum("num_unpriced"), usd=Sum("cost_usd")
    )
    return Spent(
        calls=calls["n"] + (runs["n"] or 0),
        unpriced=calls["unpriced"] + (runs["unpriced"] or 0),
        usd=(calls["usd"] or Decimal(0)) + (runs["usd"] or Decimal(0)),
    )
