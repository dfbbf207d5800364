from decimal import Decimal

from django.db import connection
from django.test.utils import CaptureQueriesContext

from evals.comparing.matching import match_runs
from evals.comparing.names import Name
from evals.comparing.problems import Change, Steadiness, read_pairs
from evals.models import Problem, Score
from registry.tenancy import tenant

A, B = Name.of("editor@1", field="a"), Name.of("editor@2", field="b")


def read(project):
    with tenant(project.id):
        return read_pairs(match_runs(A, B))


def changes(paired):
    return {one.problem_id: one.change for one in paired.problems}


def test_every_problem_says_what_became_of_it(project, bench, run):
    adding = bench({f"p{i}": {} for i in range(6)})
    run(adding, "editor@1", {"p0": 1.0, "p1": 0.0, "p2": 1.0, "p3": None, "p4": 1.0})
    run(adding, "editor@2", {"p0": 0.0, "p1": 1.0, "p2": 1.0, "p3": 1.0, "p5": 0.0})
    (paired,) = read(project)
    assert changes(paired) == {
        "p0": Change.REGRESSION,
        "p1": Change.IMPROVEMENT,
        "p2": Change.EQUAL,
        "p3": Change.UNSCORED,
        "p4": Change.ONE_SIDED,
        "p5": Change.ONE_SIDED,
    }


def test_repeats_of_a_problem_are_averaged_before_anything_else(project, bench, run):
    adding = bench()
    run(adding, "editor@1", {"p0": 1.0})
    again = run(adding, "editor@2", {"p0": 1.0})
    with tenant(project.id):
        problem = Problem.objects.get(problem_id="p0")
        Score.objects.create(
            run=again, problem=problem, scorer="unit_tests", repeat=1, status="scored", value=0.0, latency_ms=300.0
        )
    (paired,) = read(project)
    (one,) = paired.problems
    assert (one.b.value, one.b.num_repeats, one.b.latency_ms, one.difference) == (0.5, 2, 200.0, -0.5)


def test_an_unpriced_repeat_makes_the_answers_cost_unknown(project, bench, run):
    adding = bench()
    run(adding, "editor@1", {"p0": 1.0}, cost=Decimal("0.25"))
    run(adding, "editor@2", {"p0": 1.0})
    (paired,) = read(project)
    assert (paired.problems[0].a.cost_usd, paired.problems[0].b.cost_usd) == (Decimal("0.25"), None)


def test_the_number_of_queries_does_not_grow_with_the_problems(project, bench, run):
    counts = []
    for version, size in ((1, 1), (2, 100)):
        problems = {f"p{i}": {} for i in range(size)}
        adding = bench(problems, version=version)
        run(adding, "editor@1", dict.fromkeys(problems, 1.0)), run(adding, "editor@2", dict.fromkeys(problems, 1.0))
        with CaptureQueriesContext(
            connection,
        ) as queries:
            read(project)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_change_is_real_where_every_try_says_so_and_flaky_where_tries_overlap(project, bench, run):
    adding = bench({f"p{i}": {} for i in range(4)})
    tries = {  # problem -> (further tries of a, of b); the first ones are below
        "p0": ([1.0], [0.0]), "p1": ([0.0], [0.0]), "p2": ([], [0.0, 0.0]), "p3": ([1.0], [1.0]),
    }  # fmt: skip
    runs = [
        run(adding, "editor@1", dict.fromkeys(tries, 1.0)),
        run(adding, "editor@2", {"p0": 0.0, "p1": 0.0, "p2": 0.0, "p3": 1.0}),
    ]
    with tenant(project.id):
        for problem in Problem.objects.all():
            for one, values in zip(runs, tries[problem.problem_id], strict=True):
                for repeat, value in enumerate(values, start=1):
                    Score.objects.create(
                        run=one, problem=problem, scorer="unit_tests", repeat=repeat, status="scored", value=value
                    )
    (paired,) = read(project)
    assert {one.problem_id: one.steadiness for one in paired.problems} == {
        "p0": Steadiness.REAL,  # 1 1 against 0 0
        "p1": Steadiness.FLAKY,  # 1 0 against 0 0
        "p2": Steadiness.ONE_TRY,  # 1 against 0 0 0
        "p3": None,  # equal
    }
