"""Making judges, changing what they do, and what a day of theirs may cost."""

import asyncio
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction

from evals.judging.completer import Completion
from evals.judging.judge import Judge
from evals.models import AnchorSet, JudgeCall, JudgeVersion
from evals.services.anchors import request_anchor_run
from evals.services.budgets import Budget, Budgeted, BudgetSpent, Spent, budget_of, spent_today
from evals.services.completers import HttpCompleter, completer_of
from evals.services.judges import (
    change_duty,
    create_judge,
    create_panel,
    duty_of,
    judge_of,
    judges_itself,
    version_of,
)
from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def inside(project, settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    with tenant(project.id):
        yield


URL = "http://127.0.0.1:9/v1"


def test_a_version_is_all_its_parts_and_reads_back_as_the_same_judge(inside):
    made = create_judge(
        name="polite", model="judge-1", endpoint=URL, rubric="Is it polite?", scale_low=0, scale_high=10, actor="ada",
        sampling={"temperature": 0, "max_tokens": 200, "structured": True},
    )  # fmt: skip
    judge = judge_of(made)
    assert (judge.rubric.text, judge.rubric.scale.high, judge.endpoint) == ("Is it polite?", 10, URL)
    assert version_of(judge) == made and "Is it polite?" in judge.system
    assert AuditEvent.objects.get(verb="create", object_kind="judge").actor == "ada"


@pytest.mark.parametrize(
    "change",
    [
        {"model": "judge-2"},
        {"sampling": {"temperature": 1}},
        {"rubric": "Is it short?"},
        {"scale_high": 10},
        {"template": "Mark {rubric} from {low} to {high}"},
        {"protocol": "weighted"},
        {"endpoint": "http://127.0.0.1:8/v1"},
    ],
)
def test_changing_any_part_makes_another_version(inside, change):
    parts = {"name": "j", "model": "judge-1", "endpoint": URL, "actor": "ada"}
    first = create_judge(**parts)
    assert create_judge(**parts | change).pk != first.pk
    with pytest.raises(Conflict, match="says the same"):
        create_judge(**parts)


def test_the_database_refuses_to_change_a_version(inside):
    made = create_judge(name="j", model="judge-1", endpoint=URL, actor="ada")
    with pytest.raises(IntegrityError, match="is immutable"), transaction.atomic():
        JudgeVersion.objects.filter(pk=made.pk).update(model="other")


def test_judges_from_before_are_the_same_judge_still(inside):
    old = JudgeVersion.objects.create(
        name="base", model="editor@1", prompt_digest=Judge(name="x", model="y").prompt_digest, parser_version="1",
        sampling={"temperature": 0, "max_tokens": 96},
    )  # fmt: skip
    assert version_of(Judge(name="base", model="editor@1", sampling={"temperature": 0, "max_tokens": 96})) == old
    assert completer_of(old).model == "editor@1"


@pytest.mark.parametrize(
    ("field", "parts"),
    [
        ("name", {"name": ""}),
        ("model", {"model": "x" * 201}),
        ("endpoint", {"endpoint": "http://169.254.169.254/v1"}),
        ("endpoint", {"endpoint": "file:///etc/passwd"}),
        ("protocol", {"protocol": "vibes"}),
        ("scale_high", {"scale_low": 5, "scale_high": 1}),
        ("scale_high", {"scale_high": float("nan")}),
        ("template", {"template": "no places"}),
        ("rubric", {"rubric": "x" * 30_000}),
        ("sampling", {"sampling": {"tools": []}}),
        ("sampling", {"sampling": {"temperature": "hot"}}),
        ("sampling", {"sampling": {"temperature": float("inf")}}),
        ("model", {"endpoint": "scripted", "model": "scripted/none-such"}),
    ],
)
def test_what_makes_no_judge_is_refused_with_its_field(inside, field, parts):
    with pytest.raises(InvalidInput) as refused:
        create_judge(**{"name": "j", "model": "judge-1", "endpoint": URL, "actor": "ada"} | parts)
    assert refused.value.field == field and JudgeVersion.objects.count() == 0


def test_a_key_is_sent_to_its_own_address_only(inside, settings):
    settings.JUDGE_KEYS = [f"{URL}=secret-1"]
    with_key = completer_of(create_judge(name="a", model="m", endpoint=URL, actor="ada"))
    without = completer_of(create_judge(name="b", model="m", endpoint="http://127.0.0.1:8/v1", actor="ada"))
    assert isinstance(with_key, HttpCompleter) and with_key.headers() == {"authorization": "Bearer secret-1"}
    assert without.headers() == {}


def test_a_scripted_judge_needs_no_model(inside):
    judge = create_judge(name="long", model="scripted/longest", endpoint="scripted", protocol="pairwise", actor="ada")
    assert completer_of(judge).__class__.__name__ == "ScriptedCompleter"


# --- Who may judge whom ---


@pytest.mark.parametrize(
    ("judge", "rated", "is_itself"),
    [
        ("editor@1", "editor@3", True),
        ("editor@3", "editor@3", True),
        ("editor", "editor@3", True),
        ("editor@1", "other@1", False),
        ("gpt-5", "gpt-5", False),
        ("gpt-5", "editor@3", False),
    ],
)
def test_any_checkpoint_of_a_policy_is_the_policy(inside, judge, rated, is_itself):
    assert judges_itself(JudgeVersion(model=judge), rated, "gpt-5") is is_itself


# --- Duty ---


def test_a_duty_is_changed_and_audited(inside):
    judge = create_judge(name="j", model="m", endpoint=URL, actor="ada")
    assert (duty_of(judge).live, duty_of(judge).daily_usd) == ("", None)
    change_duty(judge, actor="bob", live="turn", share=0.1, daily_usd=Decimal("2.50"))
    assert (duty_of(judge).share, duty_of(judge).changed_by) == (0.1, "bob")
    event = AuditEvent.objects.get(verb="change duty")
    assert (event.before["live"], event.after["live"], event.after["daily_usd"]) == ("", "turn", "2.50")


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("live", {"live": "everything"}),
        ("share", {"share": 0}),
        ("share", {"share": 1.5}),
        ("idle_s", {"idle_s": 0}),
        ("daily_usd", {"daily_usd": Decimal("-1")}),
        ("daily_usd", {"daily_usd": Decimal("NaN")}),
        ("daily_calls", {"daily_calls": -1}),
        ("model", {"model": "other"}),
    ],
)
def test_a_duty_that_cannot_be_is_refused_with_its_field(inside, field, change):
    judge = create_judge(name="j", model="m", endpoint=URL, actor="ada")
    with pytest.raises(InvalidInput) as refused:
        change_duty(judge, actor="ada", **change)
    assert refused.value.field == field


@pytest.mark.parametrize("protocol", ["pairwise", "reference"])
def test_live_traffic_has_one_answer_and_no_reference(inside, protocol):
    judge = create_judge(name="j", model="m", endpoint=URL, protocol=protocol, actor="ada")
    with pytest.raises(InvalidInput, match="one answer and no reference"):
        change_duty(judge, actor="ada", live="turn")


def test_a_panel_has_two_judges_of_single_answers_or_more(inside):
    first, second = (create_judge(name=name, model="m", endpoint=URL, actor="ada") for name in "ab")
    pairwise = create_judge(name="p", model="m", endpoint=URL, protocol="pairwise", actor="ada")
    for judges in ([first.pk], [first.pk, pairwise.pk], [first.pk, 4711]):
        with pytest.raises(InvalidInput):
            create_panel("two", judges, actor="ada")
    create_panel("two", [first.pk, second.pk], actor="ada")
    with pytest.raises(Conflict, match="take another name"):
        create_panel("two", [first.pk, second.pk], actor="ada")


# --- Budgets ---


class Priced:
    def __init__(self, cost):
        self.cost, self.asked = cost, 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def complete(self, prompt, sampling):
        self.asked += 1
        await asyncio.sleep(0)
        return Completion(text="x", cost_usd=self.cost)


def ask(completer, times):
    async def all_of_them():
        async with completer:
            asked = (completer.complete("x", {}) for _ in range(times))
            return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_a_hundred_at_once_do_not_all_pass_a_budget_of_three_calls():
    judge = Priced(Decimal("0.01"))
    said = ask(Budgeted(judge, Budget(calls=3), Spent()), 100)
    assert judge.asked == 3 and sum(isinstance(one, BudgetSpent) for one in said) == 97


def test_a_budget_in_dollars_stops_once_it_is_spent():
    judge = Priced(Decimal("0.40"))
    completer = Budgeted(judge, Budget(usd=Decimal("1.00")), Spent())
    said = [ask(completer, 1)[0] for _ in range(5)]
    assert judge.asked == 3 and str(said[-1]) == "the day's budget of $1 is spent"


def test_a_budget_in_dollars_cannot_be_kept_without_a_price_and_says_so():
    judge = Priced(None)
    completer = Budgeted(judge, Budget(usd=Decimal(1)), Spent())
    assert [isinstance(ask(completer, 1)[0], BudgetSpent) for _ in range(2)] == [False, True]
    assert "has no price" in str(ask(completer, 1)[0]) and judge.asked == 1


def test_the_day_counts_calls_with_a_reply_that_were_not_cached(inside):
    judge = create_judge(name="j", model="m", endpoint=URL, actor="ada")
    change_duty(judge, actor="ada", daily_calls=5)
    anchors = AnchorSet.objects.create(name="a", items=[{"key": "1", "task": "x", "answer": "y"}], created_by="ada")
    run = request_anchor_run(judge, anchors, actor="ada")
    for verdict, cost, is_cached in (
        ("scored", Decimal("0.5"), False),
        ("invalid", None, False),
        ("error", None, False),
        ("scored", Decimal(0), True),
    ):
        JudgeCall.objects.create(
            anchor_run=run, judge=judge, cache_key="", verdict=verdict, cost_usd=cost, is_cached=is_cached
        )
    spent = spent_today(judge)
    assert (spent.calls, spent.unpriced, spent.usd, budget_of(judge).calls) == (2, 1, Decimal("0.5"), 5)
