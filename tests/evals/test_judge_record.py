"""What a judge version's rows say about it. Shares are checked by hand; the number of queries must not grow."""

from datetime import timedelta
from decimal import Decimal as D

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from evals.judge_evidence import beside_people, beside_tests
from evals.judge_record import find_judge, judge_versions, judgements_of, records
from evals.judge_trust import trusts
from evals.judging.canaries import Standing
from evals.judging.pairwise import PairVerdict
from evals.models import Benchmark, CanaryRun, Comparison, EvalRun, JudgeCall, JudgeVersion, Problem, Score
from registry.errors import NotFound
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db
LATER, EARLIER = timezone.now() + timedelta(days=1), timezone.now() - timedelta(days=30)


def make_judge(name="base"):
    return JudgeVersion.objects.create(name=name, model="editor@1", prompt_digest="d" * 64, parser_version="1")


def make_problem(key="p0"):
    benchmark, _ = Benchmark.objects.get_or_create(name="adding", version=1)
    return Problem.objects.create(benchmark=benchmark, problem_id=key, prompt="solve")


def judged(judge, problem, verdict, *calls, left="editor@2", right="editor@1"):
    """calls: (order, verdict) or (order, verdict, cost)."""
    comparison = Comparison.objects.create(
        problem=problem, left=left, right=right, by="judge", judge=judge, verdict=verdict
    )
    for order, said, *cost in calls:
        JudgeCall.objects.create(
            comparison=comparison, judge=judge, order=order, cache_key="k", verdict=said,
            cost_usd=cost[0] if cost else None, latency_ms=100.0, error="status 401" if said == "error" else "",
        )  # fmt: skip
    return comparison


def record_of(judge):
    return records([judge], since=EARLIER, until=LATER)[0]


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield


def test_position_consistency_is_over_judgements_decided_in_both_orders(inside):
    judge = make_judge()
    judged(judge, make_problem("p0"), "left", ("lr", "left"), ("rl", "left"))
    judged(judge, make_problem("p1"), "tie", ("lr", "left"), ("rl", "right"))
    judged(judge, make_problem("p2"), "invalid", ("lr", "left"), ("rl", "invalid"))
    found = record_of(judge)
    assert (found.consistent.successes, found.consistent.n) == (1, 2)


def test_the_first_slot_is_a_in_either_order(inside):
    # shown first and preferred: left in lr, right in rl; ties prefer nobody
    judge = make_judge()
    judged(judge, make_problem("p0"), "tie", ("lr", "left"), ("rl", "right"))
    judged(judge, make_problem("p1"), "left", ("lr", "left"), ("rl", "left"))
    judged(judge, make_problem("p2"), "tie", ("lr", "tie"), ("rl", "tie"))
    found = record_of(judge)
    assert (found.first_slot.successes, found.first_slot.n) == (3, 4)


def test_a_repaired_reply_counts_as_unparsable_and_its_repair_decides(inside):
    judge = make_judge()
    judged(judge, make_problem(), "left", ("lr", "invalid"), ("lr", "left"), ("rl", "left"))
    found = record_of(judge)
    assert (found.unparsable.successes, found.unparsable.n) == (1, 3)
    assert (found.consistent.successes, found.consistent.n) == (1, 1)


def test_requests_without_a_reply_are_failures_and_not_unparsable(inside):
    judge = make_judge()
    judged(judge, make_problem(), "error", ("lr", "error"), ("rl", "left"))
    found = record_of(judge)
    assert (found.failed.successes, found.failed.n) == (1, 2)
    assert (found.unparsable.n, found.num_blocked) == (1, 1)


def test_a_judgement_costs_what_all_its_replies_cost_and_unpriced_ones_stay_outside(inside):
    judge = make_judge()
    judged(judge, make_problem("p0"), "left", ("lr", "left", D("0.0010")), ("rl", "left", D("0.0030")))
    judged(judge, make_problem("p1"), "left", ("lr", "left", D("0.0010")), ("rl", "left"))
    found = record_of(judge)
    assert (found.num_priced, found.num_unpriced) == (1, 1)
    assert found.cost_per_judgement == D("0.0040")


def test_without_a_price_there_is_no_cost_rather_than_0(inside):
    judge = make_judge()
    judged(judge, make_problem(), "left", ("lr", "left"), ("rl", "left"))
    assert record_of(judge).cost_per_judgement is None


def test_agreement_with_the_tests_joins_the_scores_of_both_sides(inside):
    judge, problem = make_judge(), make_problem()
    for name, value in (("editor@2", 1.0), ("editor@1", 0.0)):
        run = EvalRun.objects.create(benchmark=problem.benchmark, checkpoint=name, scorer="unit_tests")
        Score.objects.create(run=run, problem=problem, scorer="unit_tests", status="scored", value=value)
    judged(judge, problem, "left", ("lr", "left"), ("rl", "left"))
    agreement = record_of(judge).beside_tests
    assert (agreement.agreement.successes, agreement.n) == (1, 1)


def test_a_verdict_is_held_against_the_tests_of_the_very_answers_that_were_judged(inside):
    # editor@2 was run again after the judgement and answered something else, which the tests score the other way
    judge, problem = make_judge(), make_problem()
    for name, output, value in (("editor@2", "a + b", 1.0), ("editor@1", "a", 0.0), ("editor@2", "a - b", 0.0)):
        run = EvalRun.objects.create(benchmark=problem.benchmark, checkpoint=name, scorer="unit_tests")
        Score.objects.create(
            run=run, problem=problem, scorer="unit_tests", status="scored", output=output, value=value
        )  # fmt: skip
    said = judged(judge, problem, "left")
    Comparison.objects.filter(pk=said.pk).update(left_text="a + b", right_text="a")
    assert beside_tests(judgements_of(judge))[judge.pk] == [(PairVerdict.LEFT, PairVerdict.LEFT)]
    Comparison.objects.filter(pk=said.pk).update(left_text="seen nowhere")
    assert beside_tests(judgements_of(judge))[judge.pk] == [(PairVerdict.LEFT, None)]


def test_people_are_the_gold_and_a_vote_for_the_swapped_pair_counts_too(inside):
    judge, problem = make_judge(), make_problem()
    judged(judge, problem, "left")
    Comparison.objects.create(problem=problem, left="editor@2", right="editor@1", by="person", verdict="left")
    Comparison.objects.create(problem=problem, left="editor@1", right="editor@2", by="person", verdict="left")
    assert beside_people(judgements_of(judge))[judge.pk] == [  # the newest first
        (PairVerdict.LEFT, PairVerdict.RIGHT),
        (PairVerdict.LEFT, PairVerdict.LEFT),
    ]
    assert record_of(judge).beside_people.agreement.share == 0.5


def test_failed_canaries_pause_the_judge(inside):
    judge = make_judge()
    CanaryRun.objects.create(judge=judge, state="done", standing="failed", requested_by="ada")
    found = record_of(judge)
    assert found.standing is Standing.FAILED and trusts([judge])[judge.pk].is_paused


def test_a_judge_that_said_nothing_has_no_shares(inside):
    found = record_of(make_judge())
    assert (found.num_judgements, found.consistent.share, found.unparsable.share, found.last_at) == (
        0,
        None,
        None,
        None,
    )
    assert found.standing is Standing.NOT_RUN and found.canaries is None


def test_what_was_said_outside_the_time_is_not_counted(inside):
    judge = make_judge()
    judged(judge, make_problem(), "left", ("lr", "left"), ("rl", "left"))
    found = records([judge], since=EARLIER, until=timezone.now() - timedelta(days=1))[0]
    assert (found.num_judgements, found.num_calls, found.consistent.n) == (0, 0, 0)


def test_the_number_of_queries_does_not_grow_with_judges_or_judgements(inside):
    counts = []
    for size in (1, 20):
        judges = [make_judge(f"judge {size}-{i}") for i in range(size)]
        for judge in judges:
            for i in range(size):
                judged(judge, make_problem(f"{judge.name}-{i}"), "left", ("lr", "left"), ("rl", "left"))
        with CaptureQueriesContext(connection) as queries:
            assert len(records(judges, since=EARLIER, until=LATER)) == size
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 14


def test_an_unknown_judge_is_not_found(inside):
    with pytest.raises(NotFound):
        find_judge(4711)


def test_judges_are_listed_newest_first(inside):
    first, second = make_judge("first"), make_judge("second")
    assert judge_versions() == [second, first]
