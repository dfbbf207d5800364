"""Budgets: what is spent of each, who is told at which share, and what a spent one stops."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal as D

import pytest
from django.utils import timezone

from evals.models import JudgeVersion, Problem
from evals.services.budgets import BudgetSpent, within_budget
from registry.budgets import add_budget, change_budget, parse_percents, period_of, remove_budget, stopped
from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, Budget, Notice
from registry.tenancy import tenant
from rl_online.alarms import Rule
from rl_online.models import Alarm
from rl_online.services import alarms, updates
from rl_online.spending.budgets import standings
from tests.console import evaluate, factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield project


def judged(usd: str) -> None:
    """A judge outside took so much, just now."""
    judge = JudgeVersion.objects.first() or evaluate.make_judge("judge", "judge-large")
    evaluate.make_canaries(judge, "passed", cost_usd=D(usd), num_calls=20, num_unpriced=0)


def standing():
    evaluate.count_hours()
    return standings(timezone.now())


def told() -> list[str]:
    return list(Notice.objects.filter(kind="alarm.raised").order_by("id").values_list("payload__summary", flat=True))


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [("day", (2026, 12, 31), (2027, 1, 1)), ("month", (2026, 12, 1), (2027, 1, 1))],
)
def test_days_and_months_are_utc_whatever_the_clock_of_who_asks(period, start, end):
    now = datetime.fromisoformat("2027-01-01T00:30:00+01:00")
    assert period_of(period, now) == (datetime(*start, tzinfo=UTC), datetime(*end, tzinfo=UTC))


def test_each_kind_counts_its_own_and_the_total_counts_all(inside):
    for kind in ("total", "inference", "training", "judging"):
        evaluate.make_budget(kind, "month")
    evaluate.make_card("gpt-5", input_usd=D(1), output_usd=D(0))
    factories.make_turn("s", version=None, model="gpt-5", input_tokens=3_000_000, output_tokens=0, at=timezone.now())
    judged("4")
    spent = {one.budget.kind: one.spend.cost_usd for one in standing()}
    assert spent == {"inference": 3, "judging": 4, "total": 7, "training": 0}


def test_a_share_opens_an_alarm_and_each_further_one_is_told_once(inside):
    evaluate.make_budget("judging", "day", usd="10")
    for usd in ("3", "3", "0", "2.5", "9"):  # 30, 60, 60, 85, 175 %
        judged(usd)
        alarms.watch(inside.id, now=timezone.now())
    alarm = Alarm.objects.get(rule=Rule.BUDGET)
    assert (alarm.subject, alarm.state, alarm.evidence["reached"]) == ("judging a day", "open", 100)
    assert [summary.rpartition("%: ")[2] for summary in told()] == [
        "50 % is reached", "80 % is reached", "100 % is reached",
    ]  # fmt: skip
    assert "$6.00 of the $10.00 for judging a day are spent" in told()[0]


def test_a_new_day_closes_the_alarm(inside):
    evaluate.make_budget("judging", "day", usd="1")
    judged("2")
    alarms.watch(inside.id, now=timezone.now())
    alarms.watch(inside.id, now=timezone.now() + timedelta(days=1))
    assert Alarm.objects.get(rule=Rule.BUDGET).state == "closed"


def test_without_any_price_nobody_is_told_and_no_share_is_made_up(inside):
    evaluate.make_budget("inference", "day")
    factories.make_turn("s", version=None, model="gpt-99-preview", input_tokens=9, output_tokens=9, at=timezone.now())
    alarms.watch(inside.id, now=timezone.now())
    (one,) = standing()
    assert (one.percent, one.spend.unpriced, Alarm.objects.filter(rule=Rule.BUDGET).count()) == (None, 1, 0)


def test_a_spent_budget_that_stops_asks_no_judge_and_starts_no_update(inside):
    policy = factories.make_policy()
    evaluate.make_budget("total", "day", usd="1", stops=True)
    judge = evaluate.make_judge("other", "judge-small")
    assert stopped("judging") == ""
    judged("2")
    alarms.watch(inside.id, now=timezone.now())
    assert "the project's budget of $1 for total a day is spent, until" in stopped("judging")
    with pytest.raises(BudgetSpent, match="total a day is spent"):
        asyncio.run(within_budget(judge, Never()).complete("hello", {}))
    assert "total a day is spent" in updates.consider(policy).reason
    assert "total a day is spent" in updates.readiness(policy).trigger.reason
    change_budget(Budget.objects.get().pk, usd=D(5), alert_percents=[], stops=True, actor="ada")
    assert stopped("judging") == "" and within_budget(judge, Never()).__class__ is Never


class Never:
    """A completer that must not be asked."""

    async def complete(self, prompt, sampling):
        raise AssertionError("was asked")


def test_a_budget_that_only_tells_stops_nothing(inside):
    evaluate.make_budget("judging", "day", usd="1")
    judged("2")
    alarms.watch(inside.id, now=timezone.now())
    assert Budget.objects.get().spent_until is not None and stopped("judging") == ""


def test_judges_of_a_day_come_out_of_a_month_too(inside):
    evaluate.make_budget("training", "month", stops=True)
    problem = Problem.objects.filter(benchmark=evaluate.make_benchmark(size=1)).get()
    evaluate.make_judgement(evaluate.make_judge("judge", "judge-large"), problem, "left", cost=D(6))
    (one,) = standing()
    assert one.spend.calls == 0 and one.percent == 0  # two calls for $12 are no training


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"usd": None}, "usd"), ({"usd": D(0)}, "usd"), ({"usd": D("NaN")}, "usd"), ({"usd": D("1.00001")}, "usd"),
        ({"alert_percents": [0]}, "alert_percents"), ({"alert_percents": range(1, 9)}, "alert_percents"),
        ({"kind": "inference", "stops": True}, "stops"), ({"kind": "food"}, "kind"), ({"period": "year"}, "kind"),
    ],
)  # fmt: skip
def test_a_budget_that_cannot_be_is_refused_with_its_field(inside, values, field):
    values = {"kind": "total", "period": "day", "usd": D(5), "alert_percents": [50], "stops": False} | values
    with pytest.raises(InvalidInput) as refused:
        add_budget(values.pop("kind"), values.pop("period"), actor="ada", **values)
    assert refused.value.field == field


def test_budgets_are_audited_and_there_is_one_of_a_kind(inside):
    budget = add_budget("total", "day", usd=D(5), alert_percents=[80, 50, 80], stops=False, actor="ada")
    assert budget.alert_percents == [50, 80]
    with pytest.raises(Conflict, match="change that one"):
        add_budget("total", "day", usd=D(6), alert_percents=[], stops=False, actor="ada")
    change_budget(budget.pk, usd=D(6), alert_percents=[90], stops=True, actor="bob")
    remove_budget(budget.pk, actor="bob")
    events = AuditEvent.objects.filter(object_kind="budget").order_by("id").values_list("verb", "actor", "after__usd")
    assert list(events) == [("add", "ada", "5"), ("change", "bob", "6"), ("remove", "bob", None)]


@pytest.mark.parametrize(("text", "percents"), [("50, 80 100", [50, 80, 100]), ("100% 50 %", [50, 100]), ("", [])])
def test_percents_are_written_as_people_write_them(text, percents):
    assert parse_percents(text) == percents
