"""What is spent of each budget so far, and marking those that are. Inside a tenant.

The total is all that was asked for and the idle time of the device; inference is every answer but a judge's.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from registry.budgets import period_of
from registry.models import Budget
from registry.pricing import Spend
from rl_online.spending.ledger import Ledger, ledger

PURPOSES_OF = {
    Budget.Kind.INFERENCE: ("inference", "rollouts", "proving", "playground"),
    Budget.Kind.TRAINING: ("training",),
    Budget.Kind.JUDGING: ("judging",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One budget in its present period."""

    budget: Budget
    since: datetime
    until: datetime  # the end of the period
    spend: Spend

    @property
    def is_known(self) -> bool:
        """Something was priced, or nothing was called; else nobody can say what was spent."""
        return self.spend.unpriced < self.spend.calls or not self.spend.calls

    @property
    def percent(self) -> Decimal | None:
        """Of the budget, at least: unpriced calls are not in it. None: not known."""
        return 100 * self.spend.cost_usd / self.budget.usd if self.is_known else None

    @property
    def reached(self) -> int | None:
        """The highest of its alerts that is reached."""
        percent = self.percent
        passed = [alert for alert in self.budget.alert_percents if percent is not None and percent >= alert]
        return max(passed, default=None)

    @property
    def is_spent(self) -> bool:
        return self.is_known and self.spend.cost_usd >= self.budget.usd


def standings(now: datetime) -> list[Standing]:
    """By period, then kind. One query without budgets, else those of a ledger for each period in use."""
    books: dict[str, Ledger] = {}
    found = []
    for budget in Budget.objects.order_by("period", "kind"):
        since, until = period_of(budget.period, now)
        if budget.period not in books:
            books[budget.period] = ledger(since, now)
        spend = _spend(books[budget.period], budget.kind)
        found.append(Standing(budget=budget, since=since, until=until, spend=spend))
    return found


def mark_spent(found: list[Standing]) -> None:
    """Keep until when each is spent, for who asks before spending; `registry.budgets.stopped` reads it."""
    for one in found:
        until = one.until if one.is_spent else None
        if one.budget.spent_until != until:
            # Not where somebody changed it meanwhile: the next look reckons with what it says then.
            Budget.objects.filter(pk=one.budget.pk, changed_at=one.budget.changed_at).update(spent_until=until)


def _spend(book: Ledger, kind: str) -> Spend:
    if kind == Budget.Kind.TOTAL:
        return book.total + book.idle.spend
    return sum((entry.spend for entry in book.entries if entry.purpose in PURPOSES_OF[Budget.Kind(kind)]), Spend())
