"""Mean cost of a problem against the mean score, with what is unknown left out and said."""

import math
from datetime import timedelta
from decimal import Decimal as D

import pytest
from django.utils import timezone

from console.reads import cost_quality
from console.reads.compare import costed, taken
from console.reads.cost_quality import benchmarks, sides
from evals.comparing.names import Name
from evals.comparing.problems import Answer, ProblemPair
from evals.models import Problem, Score
from feedback.rollups import hour_of
from registry.tenancy import tenant
from rl_online.spending.ledger import ledger
from tests.console import evaluate, factories

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield project


def read(benchmark):
    evaluate.count_hours()
    return {one.name: one for one in sides(benchmark, ledger(NOW - timedelta(days=30), NOW + timedelta(hours=1))).rated}


def problem_answered_in(*latencies_ms):
    a, b = (
        Answer(value=1.0, status="scored", num_repeats=1, latency_ms=ms, output_tokens=None, cost_usd=None)
        for ms in latencies_ms
    )
    return ProblemPair(key=1, problem_id="add/0", benchmark="quick", slices={}, a=a, b=b)


def test_a_billed_model_has_the_mean_of_its_bills_with_an_interval_on_the_log_axis(inside):
    gate = evaluate.make_benchmark(size=4)
    run = evaluate.make_run(gate, "gpt-5", solves=1.0)
    for score, cost in zip(Score.objects.filter(run=run).order_by("id"), ("0.01", "0.01", "0.03", "0.03"), strict=True):
        Score.objects.filter(pk=score.pk).update(cost_usd=D(cost))
    found = read(gate)["gpt-5"]
    # four families of one: mean .02, SE sqrt(4/3 * 4 * .01^2) / 4 = .0057735, t of 3 = 3.18245
    factor = math.exp(3.18245 * 0.0057735 / 0.02)
    assert found.cost_usd == pytest.approx(0.02)
    bounds = (pytest.approx(0.02 / factor, rel=1e-4), pytest.approx(0.02 * factor, rel=1e-4))
    assert (found.cost_low, found.cost_high) == bounds


def test_tokens_without_a_bill_are_priced_by_the_card_of_the_runs_hour(inside):
    gate = evaluate.make_benchmark(size=1)
    evaluate.make_run(gate, "gpt-5", solves=1.0)
    assert read(gate)["gpt-5"].cost_usd is None and read(gate)["gpt-5"].num_unpriced == 1
    evaluate.make_card("gpt-5", input_usd=D(1), output_usd=D(10))
    assert read(gate)["gpt-5"].cost_usd == pytest.approx((60 * 1 + 20 * 10) / 1e6)


def test_own_weights_cost_the_device_seconds_of_their_answers(inside):
    policy = factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D(3600))
    gate = evaluate.make_benchmark(size=2)
    run = evaluate.make_run(gate, f"{policy.name}@1", solves=1.0)
    for score, latency_ms in zip(Score.objects.filter(run=run).order_by("id"), (1000.0, 3000.0), strict=True):
        Score.objects.filter(pk=score.pk).update(latency_ms=latency_ms)
    for second in (0, 5):
        factories.make_turn(
            f"e{second}", at=hour_of(NOW) - timedelta(minutes=30) + timedelta(seconds=second), source="eval",
            latency_ms=2000.0, outcome=None, signals=(),
        )  # fmt: skip
    found = read(gate)["editor@1"]
    assert found.cost_usd == pytest.approx(2.0) and found.cost_low < 2.0 < found.cost_high


def test_a_checkpoint_costs_more_on_the_benchmark_that_takes_it_longer(inside):
    # 100 answers of 1 s and 100 of 10 s at $3.60 an hour: $.001 and $.010 a problem, not $.0055 on both
    policy = factories.make_policy()
    evaluate.make_card("own hardware", device_hour_usd=D("3.60"))
    quick, slow = evaluate.make_benchmark("quick", size=100), evaluate.make_benchmark("slow", size=100)
    start, second = hour_of(NOW) - timedelta(hours=1), 0
    for gate, seconds in ((quick, 1), (slow, 10)):
        run = evaluate.make_run(gate, f"{policy.name}@1")
        Score.objects.filter(run=run).update(latency_ms=1000.0 * seconds)
        for _ in range(100):
            factories.make_turn(
                f"e{second}", at=start + timedelta(seconds=second), source="eval", latency_ms=1000.0 * seconds,
                outcome=None, signals=(),
            )  # fmt: skip
            second += seconds
    assert read(quick)["editor@1"].cost_usd == pytest.approx(0.001)
    assert read(slow)["editor@1"].cost_usd == pytest.approx(0.010)
    side = taken(Name.of("editor@1", field="a"), ledger(NOW - timedelta(days=30), NOW + timedelta(hours=1)))
    (row,) = costed([problem_answered_in(1000.0, 10_000.0)], (side, side))
    assert (row.cost_a, row.cost_b) == (D("0.001"), D("0.010"))


def test_own_weights_without_a_price_of_the_hour_are_unpriced(inside):
    policy = factories.make_policy()
    gate = evaluate.make_benchmark(size=2)
    evaluate.make_run(gate, f"{policy.name}@1")
    found = read(gate)["editor@1"]
    assert (found.cost_usd, found.num_unpriced) == (None, 2)


def test_the_score_is_a_mean_over_scored_problems_with_a_clustered_interval(inside):
    gate = evaluate.make_benchmark(size=8)
    run = evaluate.make_run(gate, "gpt-5", solves=1.0, cost=D("0.01"))
    lost = Problem.objects.filter(benchmark=gate).first()
    Score.objects.filter(run=run, problem=lost).update(status="infra", value=None)
    found = read(gate)["gpt-5"]
    assert (found.quality, found.num_problems, found.interval) == (1.0, 7, "wilson_clustered")
    assert found.quality_low == pytest.approx(0.6457, abs=1e-4) and found.quality_high == 1.0  # Wilson for 7 of 7


def test_repeats_of_a_problem_are_no_further_problems(inside):
    # ten answers to each problem, all alike, tell no more than one to each
    once, often = evaluate.make_benchmark("once", size=4), evaluate.make_benchmark("often", size=4)
    for gate, repeats in ((once, 1), (often, 10)):
        Problem.objects.filter(benchmark=gate).update(slices={})
        run = evaluate.make_run(gate, "gpt-5")
        for place, score in enumerate(Score.objects.filter(run=run).order_by("id")):
            score.value, score.cost_usd = float(place < 2), D("0.01") * (1 + place)
            score.save()
            for repeat in range(1, repeats):
                score.pk, score.repeat = None, repeat
                score.save(force_insert=True)
    one, ten = read(once)["gpt-5"], read(often)["gpt-5"]
    assert (ten.num_problems, ten.quality) == (4, 0.5)
    assert (ten.quality_low, ten.quality_high) == pytest.approx((one.quality_low, one.quality_high))
    assert (ten.cost_low, ten.cost_high) == pytest.approx((one.cost_low, one.cost_high))
    Score.objects.filter(run__benchmark=often).update(value=1.0)
    assert read(often)["gpt-5"].quality_low == pytest.approx(0.5101, abs=1e-4)  # Wilson for 4 of 4, not 40 of 40


def test_a_run_before_the_time_is_not_read(inside):
    gate = evaluate.make_benchmark(size=1)
    evaluate.make_run(gate, "gpt-5")
    early = ledger(NOW - timedelta(days=30), NOW - timedelta(days=20))
    assert sides(gate, early).rated == [] and benchmarks(early.since, early.until) == []
    assert benchmarks(NOW - timedelta(days=1), NOW + timedelta(days=1)) == [gate]


def test_a_run_that_is_not_read_whole_is_left_out_and_named(inside, as_owner, monkeypatch):
    gate = evaluate.make_benchmark(size=6)
    for name in ("oldest", "middle", "newest"):
        evaluate.make_run(gate, name, cost=D("0.01"))
    monkeypatch.setattr(cost_quality, "MAX_ANSWERS", 13)
    assert {name: one.num_problems for name, one in read(gate).items()} == {"middle": 6, "newest": 6}
    page = as_owner.get("/p/editor/costs/quality").content.decode()
    assert "Left out: oldest. At most 13 answers are read here" in page


def test_a_side_is_read_however_often_others_ran_since(inside, monkeypatch):
    gate = evaluate.make_benchmark(size=1)
    for name in ("rare", "busy", "busy", "busy"):
        evaluate.make_run(gate, name, cost=D("0.01"))
    monkeypatch.setattr(cost_quality, "MAX_SIDES", 2)
    found = sides(gate, ledger(NOW - timedelta(days=30), NOW + timedelta(hours=1)))
    assert ([one.name for one in found.rated], found.num_older) == (["busy", "rare"], 0)


def test_sides_beyond_the_most_that_are_read_are_counted_on_the_page(inside, as_owner, monkeypatch):
    gate = evaluate.make_benchmark(size=1)
    for name in ("oldest", "middle", "newest"):
        evaluate.make_run(gate, name, cost=D("0.01"))
    monkeypatch.setattr(cost_quality, "MAX_SIDES", 2)
    assert list(read(gate)) == ["middle", "newest"]
    page = as_owner.get("/p/editor/costs/quality").content.decode()
    assert "1 more side ran on it in this time and is not read: at most 2 are" in page
