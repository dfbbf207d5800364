"""Where money went: the published ways in which cost pages were wrong, each as a small input with the right answer."""

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal as D

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.reads.cost_quality import sides
from console.reads.costs import costs
from console.reads.gains import gains
from console.reads.turn import cost_of_turn
from console.templatetags.money import usd_exact
from evals.models import Comparison, Problem
from feedback.models import AgentSession
from feedback.rollups import hour_of
from feedback.services.record import record_items
from feedback.wire import TurnItem, Usage
from registry.models import DeviceRollup
from registry.tenancy import tenant
from rl_online.models import EngineReport, UpdateRun
from rl_online.services.engines import record_about
from rl_online.spending.ledger import ledger
from rl_online.spending.turns import _apart
from tests.console import evaluate, factories

pytestmark = pytest.mark.django_db
NOW = timezone.now()
LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(days=30)
PRICES = {"input_usd": D("2"), "cache_read_usd": D("0.5"), "output_usd": D("10")}


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield project


def spent():
    evaluate.count_hours()
    return ledger(EARLIER, LATER)


def answered(model="gpt-5", *, session=None, **columns):
    columns = {"version": None, "model": model, "input_tokens": 20, "output_tokens": 10} | columns
    return factories.make_turn(session or f"s-{random.random()}", **columns)


def entry(book, name, purpose="inference"):
    return next(one for one in book.entries if (one.name, one.purpose) == (name, purpose))


# --- CASES D.20: cached tokens ---


def test_d20_cached_tokens_are_counted_once_and_at_their_own_price(inside):
    # usage {input 100, cached 80, output 10}: cost = 20 p_in + 80 p_cache + 10 p_out
    evaluate.make_card("gpt-5", **PRICES)
    answered(input_tokens=20, cache_read_tokens=80, output_tokens=10)
    assert spent().total.cost_usd == (20 * D(2) + 80 * D("0.5") + 10 * D(10)) / 1_000_000


def test_d20_without_a_price_for_cached_tokens_they_cost_what_input_costs(inside):
    evaluate.make_card("gpt-5", input_usd=D(2), output_usd=D(10))
    answered(input_tokens=20, cache_read_tokens=80, output_tokens=10)
    assert spent().total.cost_usd == D("0.0003")


# --- CASES D.22: unknown models, dated prices ---


def test_d22_a_model_without_a_price_costs_null_and_is_counted_as_unpriced(inside):
    answered("gpt-99-preview"), answered("gpt-99-preview")
    book = spent()
    assert (book.total.known_cost_usd, book.total.calls, book.total.unpriced) == (None, 2, 2)
    assert costs(book).rows[0].per_accepted_usd is None


def test_d22_a_price_valid_from_a_day_leaves_earlier_turns_as_they_were(inside):
    day = hour_of(NOW - timedelta(days=2))
    evaluate.make_card("gpt-5", at=day - timedelta(days=10), input_usd=D(1), output_usd=D(0))
    answered(at=day - timedelta(seconds=1), input_tokens=1_000_000)
    before = spent().total.cost_usd
    evaluate.make_card("gpt-5", at=day, input_usd=D(3), output_usd=D(0))
    assert (before, spent().total.cost_usd) == (D(1), D(1))
    answered(at=day, input_tokens=1_000_000)
    assert spent().total.cost_usd == D(4)


def test_d22_a_card_prices_nothing_before_its_first_day(inside):
    evaluate.make_card("gpt-5", at=NOW - timedelta(days=1), **PRICES)
    answered(at=NOW - timedelta(days=3))
    assert spent().total.unpriced == 1


def test_d22_tokens_nobody_told_are_unpriced_beside_those_that_are_known(inside):
    evaluate.make_card("gpt-5", **PRICES)
    answered(input_tokens=500_000, output_tokens=0), answered(input_tokens=None, output_tokens=None)
    total = spent().total
    assert (total.cost_usd, total.calls, total.unpriced) == (D(1), 2, 1)


def test_tokens_told_in_part_price_nothing_and_are_counted_as_unpriced(inside):
    evaluate.make_card("gpt-5", **PRICES)
    answered(input_tokens=500_000, output_tokens=0)
    answered(input_tokens=500_000, output_tokens=None), answered(input_tokens=None, output_tokens=500_000)
    run = evaluate.make_run(evaluate.make_benchmark(size=3), "gpt-5")
    whole, no_output, no_input = run.scores.order_by("id")
    for score, told in ((whole, {"input": 500_000, "output": 0}), (no_output, {"input": 9}), (no_input, {"output": 9})):
        run.scores.filter(pk=score.pk).update(usage=told)
    book = spent()
    turns, answers = entry(book, "gpt-5").spend, entry(book, "gpt-5", "proving").spend
    assert (turns.cost_usd, turns.calls, turns.unpriced) == (D(1), 3, 2)
    assert (answers.cost_usd, answers.calls, answers.unpriced) == (D(1), 3, 2)
    (side,) = sides(run.benchmark, book).rated
    assert (side.cost_usd, side.num_unpriced) == (None, 2)


def test_tokens_of_calls_that_were_billed_when_made_are_counted_too(inside):
    run = evaluate.make_run(evaluate.make_benchmark(size=2), "gpt-5", cost=D("0.01"))
    run.scores.update(usage={"input": 60, "cache_read": 5, "output": 20})
    answered(input_tokens=10, output_tokens=5)
    (row,) = costs(spent()).rows
    assert row.tokens == 2 * 85 + 15


def test_tokens_nobody_told_are_unknown_and_no_0(inside):
    answered("silent", input_tokens=None, output_tokens=None), answered("terse", input_tokens=0, output_tokens=0)
    assert {row.name: row.tokens for row in costs(spent()).rows} == {"silent": None, "terse": 0}


# --- CASES D.23: nothing is counted twice ---


def test_d23_a_session_with_nested_calls_costs_each_call_once_whatever_they_report(inside):
    # parent and child both report a cost, and the parent's includes the child's: only each one's own tokens count
    evaluate.make_card("gpt-5", **PRICES)
    items = [
        TurnItem(
            id=name, session="nested", index=index, at=NOW - timedelta(minutes=5), model="gpt-5", prompt="p",
            completion="c", usage=Usage(input=1000, output=0), metadata={"parent": parent, "cost_usd": reported},
        )
        for index, (name, parent, reported) in enumerate([("parent", None, 0.004), ("child", "parent", 0.002)])
    ]  # fmt: skip
    record_items(inside.id, items, received_at=NOW)
    book = spent()
    assert AgentSession.objects.get(session_id="nested").num_turns == 2
    assert (book.total.cost_usd, book.total.calls) == (2 * D("0.002"), 2)


def test_d23_answers_and_judgements_of_our_own_weights_are_turns_and_are_not_counted_again(inside):
    policy = factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    run = evaluate.make_run(evaluate.make_benchmark(size=2), f"{policy.name}@1")
    judge = evaluate.make_judge(model=f"{policy.name}@1")
    evaluate.make_judgement(judge, Problem.objects.filter(benchmark=run.benchmark).first(), "left")
    for second, source in ((0, "eval"), (2, "eval"), (4, "judge"), (6, "judge")):
        factories.make_turn(
            f"s{second}", at=hour_of(NOW) - timedelta(minutes=30, seconds=-second), source=source, latency_ms=1000.0,
            signals=(), outcome=None,
        )  # fmt: skip
    book = spent()
    assert {(one.purpose, one.spend.calls, one.spend.cost_usd) for one in book.entries} == {
        ("proving", 2, D(2)),
        ("judging", 2, D(2)),
    }


def test_d23_an_external_judge_is_booked_once_by_its_calls(inside):
    judge = evaluate.make_judge("judge", "judge-large")
    problem = Problem.objects.filter(benchmark=evaluate.make_benchmark(size=1)).get()
    evaluate.make_judgement(judge, problem, "left", cost=D("0.0012"))
    evaluate.make_judgement(judge, problem, "error", left="editor@3")
    evaluate.make_canaries(judge, "passed", cost_usd=D("0.01"), num_calls=20, num_unpriced=0)
    booked = entry(spent(), "judge-large", "judging").spend
    assert (booked.calls, booked.unpriced, booked.cost_usd) == (22, 0, D("0.0124"))


# --- CASES D.24: exact sums ---


def test_d24_the_total_of_a_million_rows_at_a_billionth_is_the_exact_decimal_sum(inside):
    # 1e-9 USD a token is 0.001 for a million; tokens 0 to 9 in turn, so 4.5 on average
    evaluate.make_card("tiny", input_usd=D("0.001"), output_usd=D(0))
    session = factories.make_turn("one", version=None, model="tiny", input_tokens=0, output_tokens=0).session
    at = hour_of(NOW - timedelta(days=1))
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO feedback_turn (project_id, turn_id, session_id, index, at, received_at, model, source,
              input_tokens, output_tokens, num_completion_chars, has_logprobs, is_shown, is_excluded)
            SELECT %s, 'm-' || i, %s, i, %s::timestamptz + i * interval '10 milliseconds', now(), 'tiny', 'production',
              i %% 10, 0, 0, false, true, false
            FROM generate_series(1, 1000000) i
            """,
            [inside.id, session.pk, at],
        )
    total = spent().total
    assert (total.cost_usd, total.calls, total.unpriced) == (D("0.0045"), 1_000_001, 0)
    assert usd_exact(total.cost_usd) == "$0.0045"


def test_d24_costs_too_small_for_a_float_are_added_exactly(inside):
    # in floats .1 + .2 is .30000000000000004
    evaluate.make_card("a", input_usd=D("0.1"), output_usd=D(0)), evaluate.make_card("b", input_usd=D("0.2"))
    answered("a", input_tokens=1, output_tokens=0), answered("b", input_tokens=1, output_tokens=0)
    assert usd_exact(spent().total.cost_usd) == "$0.0000003"


# --- Tiers, hours of the day, batches: what no sum over an hour can tell ---


TIER = {"above": 200_000, "input_usd": "2.5", "cache_read_usd": "0.25", "output_usd": "15"}
GEMINI = {"input_usd": D("1.25"), "cache_read_usd": D("0.125"), "output_usd": D(10), "variants": [TIER]}


def test_each_turn_pays_the_price_of_its_own_tier_and_no_sum_over_an_hour_does(inside):
    evaluate.make_card("gemini-2.5-pro", **GEMINI)
    at = hour_of(NOW) - timedelta(minutes=30)
    for prompt, read, output in ((200_000, 0, 1_000), (200_001, 0, 1_000), (5_005, 257_955, 1_744)):
        answered("gemini-2.5-pro", at=at, input_tokens=prompt, cache_read_tokens=read, output_tokens=output)
    answered("gemini-2.5-pro", at=at, input_tokens=9, output_tokens=None)
    book = entry(spent(), "gemini-2.5-pro")
    assert (book.spend.cost_usd, book.spend.calls, book.spend.unpriced) == (
        D("0.260") + D("0.5150025") + D("0.10316125"), 4, 1,
    )  # fmt: skip
    assert book.tokens == 201_000 + 201_001 + 5_005 + 257_955 + 1_744


def test_cache_writes_count_towards_a_tier_in_the_ledger_too(inside):
    evaluate.make_card("gemini-2.5-pro", **GEMINI)
    answered("gemini-2.5-pro", input_tokens=150_000, cache_write_tokens=60_000, output_tokens=0)
    assert spent().total.cost_usd == 210_000 * D("2.5") / 1_000_000


def test_a_window_of_the_day_is_kept_to_the_minute_and_past_midnight(inside):
    night = {"from": 16 * 60 + 30, "to": 30, "input_usd": "1", "output_usd": "1"}
    evaluate.make_card("deepseek-chat", input_usd=D(2), output_usd=D(2), variants=[night])
    day = NOW.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    for minutes in (29, 30, 16 * 60 + 29, 16 * 60 + 30, 23 * 60):
        answered("deepseek-chat", at=day + timedelta(minutes=minutes), input_tokens=1_000_000, output_tokens=0)
    assert spent().total.cost_usd == 1 + 2 + 2 + 1 + 1


def test_the_ledger_and_the_page_of_a_turn_choose_the_same_price(inside):
    sent = {"processing": "batch", "input_usd": "1", "output_usd": "1"}
    evaluate.make_card(
        "m", input_usd=D(4), output_usd=D(8), variants=[sent, TIER, {**TIER, "above": 9, "from": 60, "to": 0}]
    )
    turns = [
        answered("m", at=NOW - timedelta(hours=hour), input_tokens=tokens)
        for hour in (1, 9, 20)
        for tokens in (5, 50, 250_000)
    ]
    assert spent().total.cost_usd == sum(cost_of_turn(turn).usd for turn in turns)


def test_turns_under_a_card_with_other_prices_for_batches_alone_are_summed_and_not_read_one_by_one(inside):
    half = {"processing": "batch", "input_usd": "1", "output_usd": "5"}
    evaluate.make_card("gpt-5", input_usd=D(2), output_usd=D(10), variants=[half])
    answered(input_tokens=1_000_000, output_tokens=0)
    evaluate.count_hours()
    with CaptureQueriesContext(connection) as queries:
        assert ledger(EARLIER, LATER).total.cost_usd == 2
    assert not [query for query in queries if "feedback_turn\n" in query["sql"]]


def test_hours_of_varied_cards_are_told_apart_without_comparing_them_pairwise():
    class Row(dict):
        def __eq__(self, other):
            raise AssertionError("a row was compared")

    rows = [Row(card=card, slot=hour) for hour in range(3) for card in (None, 1, 2)]
    summed, varied = _apart(rows, {2})
    assert [row["card"] for row in summed] == [None, 1] * 3 and [row["card"] for row in varied] == [2] * 3


def test_an_answer_sent_in_a_batch_costs_the_batch_price(inside):
    half = {"processing": "batch", "input_usd": "1", "output_usd": "5"}
    evaluate.make_card("gpt-5", input_usd=D(2), output_usd=D(10), variants=[half])
    run = evaluate.make_run(evaluate.make_benchmark(size=2), "gpt-5")
    first, second = run.scores.order_by("id")
    run.scores.filter(pk=first.pk).update(usage={"input": 1_000_000, "output": 0, "processing": "batch"})
    run.scores.filter(pk=second.pk).update(usage={"input": 1_000_000, "output": 0})
    assert entry(spent(), "gpt-5", "proving").spend.cost_usd == 1 + 2


def test_what_the_provider_billed_stands_before_what_was_calculated_and_is_kept_apart(inside):
    run = evaluate.make_run(evaluate.make_benchmark(size=2), "gpt-5", cost=D("0.01"))
    billed = run.scores.order_by("id").first()
    run.scores.filter(pk=billed.pk).update(usage={"input": 60, "output": 20, "provided_usd": "0.012"})
    spend = entry(spent(), "gpt-5", "proving").spend
    assert (spend.cost_usd, spend.provided_usd) == (D("0.022"), D("0.012"))


def test_the_tokens_of_calls_without_a_price_are_told_as_left_out(inside):
    answered("gpt-99-preview", input_tokens=100, output_tokens=20), answered("gpt-99-preview", input_tokens=None)
    assert spent().total.unpriced_tokens == 120


def test_a_list_price_holds_until_the_first_own_card(inside):
    evaluate.make_card("gpt-5", at=NOW - timedelta(days=40), input_usd=D(1), output_usd=D(0), source="list 1")
    evaluate.make_card("gpt-5", at=NOW - timedelta(days=1), input_usd=D(5), output_usd=D(0), source="list 1")
    evaluate.make_card("gpt-5", at=NOW - timedelta(days=3), input_usd=D(2), output_usd=D(0))
    for days in (5, 2, 0):
        answered(at=NOW - timedelta(days=days), input_tokens=1_000_000, output_tokens=0)
    assert spent().total.cost_usd == 1 + 2 + 2


# --- Own hardware ---


def own(second, latency_ms, **columns):
    start = datetime(NOW.year, NOW.month, NOW.day, NOW.hour, tzinfo=UTC) - timedelta(hours=2)
    columns = {"signals": (), "outcome": None} | columns
    return factories.make_turn(f"own-{second}", at=start + timedelta(seconds=second), latency_ms=latency_ms, **columns)


def test_without_a_price_of_the_hour_own_weights_are_unpriced_and_never_0(inside):
    factories.make_policy()
    own(0, 1000.0)
    book = spent()
    assert (book.has_device_price, book.total.known_cost_usd, book.total.unpriced) == (False, None, 1)
    assert entry(book, "editor@1").seconds == 1


def test_time_in_which_two_answers_share_a_device_is_paid_once_and_shared_by_latency(inside):
    # 0 to 3 and 1 to 2 keep the device for 3 s; latencies 3 and 1 share them as 2.25 and .75
    factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    own(0, 3000.0, version=1), own(1, 1000.0, version=2)
    book = spent()
    assert (entry(book, "editor@1").spend.cost_usd, entry(book, "editor@2").spend.cost_usd) == (D("2.25"), D("0.75"))


def test_an_answer_without_a_time_is_unpriced(inside):
    factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    own(0, 2000.0), own(5, None)
    spend = entry(spent(), "editor@1").spend
    assert (spend.calls, spend.unpriced, spend.cost_usd) == (2, 1, D(2))


def test_training_costs_the_seconds_it_held_a_device(inside):
    policy = factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    first = policy.checkpoints.get()
    factories.make_update(policy, factories.make_batch(policy, []), parent=first, version=2, state="promoted")
    factories.make_update(policy, factories.make_batch(policy, []), parent=first, version=3, state="training")
    book = spent()
    assert entry(book, "editor@2", "training").spend.cost_usd == D("21.3")
    assert not [one for one in book.entries if one.name == "editor@3"]


def test_simulated_sessions_are_rollouts_and_imports_are_nobodys_cost_here(inside):
    factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    own(0, 1000.0, source="simulated"), own(5, 1000.0, source="import"), own(9, 1000.0, source="playground")
    book = spent()
    assert {one.purpose: one.spend.calls for one in book.entries} == {"rollouts": 1, "playground": 1}
    assert book.num_imported == 1


def test_a_device_that_nobody_asks_is_paid_for_beside_the_total(inside):
    # an engine was there for 100 s of an hour; answers took 2 s of them, an update 21.3 s
    policy = factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    assert spent().idle.known_since is None
    own(0, 2000.0)
    hour = hour_of(NOW) - timedelta(hours=2)
    run = factories.make_update(
        policy, factories.make_batch(policy, []), parent=policy.checkpoints.get(), version=2, state="promoted"
    )
    UpdateRun.objects.filter(pk=run.pk).update(started_at=hour, created_at=hour)
    DeviceRollup.objects.create(engine="engine-1", hour=hour, held_ms=100_000)
    book = spent()
    assert (book.idle.held_seconds, book.idle.spend.cost_usd) == (100, 100 - 2 - D("21.3"))
    assert book.total.cost_usd == 2 + D("21.3")
    shares = {row.name: row.idle_usd for row in costs(book).rows}
    assert shares["editor@2"] / shares["editor@1"] == D("21.3") / 2


def test_what_an_update_of_the_time_before_takes_of_this_one_is_not_idle(inside):
    # asked for two hours before the span, it trains from 5 minutes before it to 10 minutes into it
    policy = factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    start = hour_of(NOW) - timedelta(hours=1)
    run = factories.make_update(
        policy, factories.make_batch(policy, []), parent=policy.checkpoints.get(), version=2, timings={"train": 900.0}
    )
    UpdateRun.objects.filter(pk=run.pk).update(
        created_at=start - timedelta(hours=2), started_at=start - timedelta(minutes=5)
    )
    DeviceRollup.objects.create(engine="engine-1", hour=start, held_ms=3_600_000)
    before, after = ledger(start - timedelta(hours=3), start), ledger(start, start + timedelta(hours=1))
    assert (before.total.cost_usd, after.total.cost_usd) == (900, 0)
    assert after.idle.idle_seconds == 3600 - 600


def test_hours_of_an_engine_are_counted_from_its_reports_and_never_from_before_it_started(inside):
    record_about("engine-1", {"uptime_s": 10.0})
    EngineReport.objects.update(reported_at=timezone.now() - timedelta(seconds=20))
    record_about("engine-1", {"uptime_s": 30.0})
    EngineReport.objects.update(reported_at=timezone.now() - timedelta(hours=3))  # silent for three hours
    record_about("engine-1", {"uptime_s": 10_830.0})
    total = sum(DeviceRollup.objects.values_list("held_ms", flat=True)) / 1000
    assert total == pytest.approx(10 + 20 + 60, abs=2)


# --- What it bought ---


def test_an_accepted_turn_costs_all_inference_over_those_accepted(inside):
    evaluate.make_card("gpt-5", input_usd=D(1), output_usd=D(0))
    for outcome in ("accept", "reject", "reject", "silence"):
        answered(outcome=outcome, input_tokens=1_000_000)
    found = costs(spent())
    assert (found.rows[0].per_accepted_usd, found.per_accepted_usd) == (D(4), D(4))


def test_what_the_playground_took_is_no_part_of_the_cost_of_an_accepted_turn(inside):
    evaluate.make_card("gpt-5", input_usd=D(1), output_usd=D(0))
    answered(outcome="accept", input_tokens=1_000_000)
    answered(outcome=None, signals=(), source="playground", input_tokens=7_000_000)
    found = costs(spent())
    assert (found.rows[0].per_accepted_usd, found.per_accepted_usd, found.total.cost_usd) == (D(1), D(1), D(8))


def test_a_solved_problem_costs_all_answers_over_those_that_solved(inside):
    run = evaluate.make_run(evaluate.make_benchmark(size=10), "gpt-5", solves=0.5, cost=D("0.01"))
    solved = run.scores.filter(value=1).count()
    row = costs(spent()).rows[0]
    assert row.bought.solved == solved and row.per_solved_usd == D("0.1") / solved


def test_the_cost_of_an_accepted_turn_has_the_interval_of_a_ratio_over_hours(inside):
    # hours (cost, accepted): (1, 1), (2, 1), (3, 4): R 1, SE sqrt(3/2 * 2) / 6 = .28868, t of 2 = 4.30265
    evaluate.make_card("gpt-5", input_usd=D(1), output_usd=D(0))
    for hours, (cost, accepted) in enumerate(((1, 1), (2, 1), (3, 4)), start=1):
        for turn in range(accepted):
            millions = cost if turn == 0 else 0
            answered(
                at=NOW - timedelta(hours=hours), outcome="accept", input_tokens=1_000_000 * millions, output_tokens=0
            )
    found = costs(spent()).rows[0].accepted_ratio
    assert (found.value, found.se, found.num_clusters) == (1.0, pytest.approx(3**0.5 / 6), 3)
    assert found.high == pytest.approx(math.exp(4.30265 * 3**0.5 / 6), rel=1e-4) and found.low == pytest.approx(
        1 / found.high
    )


def test_the_cost_of_a_solved_problem_has_the_interval_of_a_ratio_over_problems(inside):
    run = evaluate.make_run(evaluate.make_benchmark(size=10), "gpt-5", solves=0.5, cost=D("0.01"))
    row = costs(spent()).rows[0]
    assert row.solved_ratio.value == pytest.approx(float(row.per_solved_usd))
    assert row.solved_ratio.low < row.solved_ratio.value < row.solved_ratio.high and row.solved_ratio.num_clusters == 10
    run.scores.filter(pk=run.scores.first().pk).update(cost_usd=None)
    assert costs(spent()).rows[0].solved_ratio is None  # one answer's cost is not known by itself


def test_a_win_rate_point_costs_what_making_and_proving_took_over_the_points_gained(inside):
    policy = factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    parent = policy.checkpoints.get()
    factories.make_update(policy, factories.make_batch(policy, []), parent=parent, version=2, state="promoted")
    factories.make_checkpoint(policy, 2, parent, state="candidate")
    problems = list(Problem.objects.filter(benchmark=evaluate.make_benchmark(size=40)))
    judge = evaluate.make_judge()
    for place, problem in enumerate(problems):
        evaluate.make_judgement(judge, problem, "left" if place < 36 else "right")
    (gain,) = gains(spent())
    assert (gain.name, gain.parent, gain.rate.rate, gain.spend.cost_usd) == ("editor@2", "editor@1", 0.9, D("21.3"))
    assert gain.per_point_usd == D("21.3") / 40
    assert gain.low_usd < gain.per_point_usd < gain.high_usd
    Comparison.objects.filter(problem__in=problems[:16]).update(verdict="right")
    (gain,) = gains(spent())
    assert gain.rate.rate == 0.5 and (gain.per_point_usd, gain.high_usd) == (None, None)


def test_nothing_accepted_has_no_cost_for_each(inside):
    evaluate.make_card("gpt-5", **PRICES)
    answered(outcome="reject")
    assert costs(spent()).rows[0].per_accepted_usd is None


def test_another_projects_costs_are_not_seen(inside, other_project):
    evaluate.make_card("gpt-5", **PRICES)
    answered()
    evaluate.count_hours()
    with tenant(other_project.id):
        assert ledger(EARLIER, LATER).entries == ()
