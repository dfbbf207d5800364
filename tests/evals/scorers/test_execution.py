import pytest

from evals.scorers.execution import Executability, Generality, Runner, TestShare, UnitTests
from evals.scorers.registry import SCORERS, scorer_named
from evals.scorers.sandbox.confinement import Limits
from evals.scorers.sandbox.host import Outcome, SandboxUnavailable, failed
from evals.scorers.scorer import ProblemSpec, Status

PROBLEM = ProblemSpec(
    id="add/1", prompt="def f(a):\n    return", tests={"function": "f", "cases": [{"args": [1], "expected": 3}]}
)


class FlakySandbox:
    """A sandbox that fails on its own a number of times before it works."""

    def __init__(self, sandbox, *, num_faults, bad_end=failed(Outcome.SANDBOX_FAULT, "lost", level="")):
        self._sandbox, self._num_faults, self.num_runs, self.bad_end = sandbox, num_faults, 0, bad_end

    def run(self, code, tests, *, limits):
        self.num_runs += 1
        if self.num_runs > self._num_faults:
            return self._sandbox.run(code, tests, limits=limits)
        return self.bad_end


class MissingSandbox:
    def run(self, code, tests, *, limits):
        raise SandboxUnavailable("nothing here confines anything")


@pytest.fixture
def runner(sandbox):
    return Runner(sandbox, limits=Limits(wall_s=1.0))


def test_hidden_tests_decide(runner, sandbox):
    right, wrong = UnitTests(runner).score(PROBLEM, " a + 2"), UnitTests(runner).score(PROBLEM, " a + 1")
    assert (right.value, right.status, right.sandbox_level) == (1.0, Status.SCORED, sandbox.level)
    assert (wrong.value, wrong.explanation) == (0.0, "wrong: f(1) returned 2, expected 3")


def test_executability_only_asks_that_it_loads(runner):
    assert Executability(runner).score(PROBLEM, " a + 1").value == 1.0
    assert Executability(runner).score(PROBLEM, " a +").value == 0.0


def test_a_timeout_is_a_zero(runner):
    looping = ProblemSpec(id="x", prompt="while True: pass\n", tests=PROBLEM.tests)
    score = UnitTests(runner).score(looping, "")
    assert (score.value, score.parts["outcome"]) == (0.0, "timeout")


def test_a_problem_without_tests_is_unscored(runner):
    assert UnitTests(runner).score(ProblemSpec(id="x", prompt=""), "x = 1").status is Status.UNSCORED


def test_a_fault_is_tried_again_and_then_does_not_show(sandbox):
    flaky = FlakySandbox(sandbox, num_faults=1)
    assert UnitTests(Runner(flaky)).score(PROBLEM, " a + 2").value == 1.0
    assert flaky.num_runs == 2


def test_a_lasting_fault_masks_the_score_and_is_never_a_zero(sandbox):
    flaky = FlakySandbox(sandbox, num_faults=2)
    score = UnitTests(Runner(flaky)).score(PROBLEM, " a + 2")
    assert (score.value, score.status, flaky.num_runs) == (None, Status.INFRA, 2)


def test_a_timeout_for_want_of_cpu_time_is_tried_again(sandbox):
    starved = FlakySandbox(sandbox, num_faults=1, bad_end=failed(Outcome.TIMEOUT, "late", level=""))
    assert UnitTests(Runner(starved)).score(PROBLEM, " a + 2").value == 1.0


def test_a_sleeping_answer_times_out_twice_and_is_a_zero(sandbox):
    counting = FlakySandbox(sandbox, num_faults=0)
    sleepy = ProblemSpec(id="x", prompt="import time\ntime.sleep(60)\n", tests=PROBLEM.tests)
    score = UnitTests(Runner(counting, limits=Limits(wall_s=0.3))).score(sleepy, "")
    assert (score.value, score.status, counting.num_runs) == (0.0, Status.SCORED, 2)


def test_a_machine_that_cannot_confine_masks_every_score_and_says_why():
    score = UnitTests(Runner(MissingSandbox())).score(PROBLEM, " a + 2")
    assert (score.value, score.status) == (None, Status.INFRA)
    assert "nothing here confines anything" in score.explanation


def test_the_same_answer_is_run_once(sandbox):
    counting = FlakySandbox(sandbox, num_faults=0)
    scorer = UnitTests(Runner(counting))
    assert [scorer.score(PROBLEM, " a + 2").value for _ in range(3)] == [1.0, 1.0, 1.0]
    assert counting.num_runs == 1
    scorer.score(ProblemSpec(id="x", prompt=PROBLEM.prompt, tests={"function": "f", "cases": []}), " a + 2")
    assert counting.num_runs == 2


def test_an_answer_that_reached_its_tests_is_known_to_load(sandbox):
    counting = FlakySandbox(sandbox, num_faults=0)
    runner = Runner(counting)
    assert UnitTests(runner).score(PROBLEM, " a").value == 0.0
    assert Executability(runner).score(PROBLEM, " a").value == 1.0
    assert counting.num_runs == 1


def test_faults_and_timeouts_are_not_remembered(sandbox):
    flaky = FlakySandbox(sandbox, num_faults=2)
    scorer = UnitTests(Runner(flaky))
    assert [scorer.score(PROBLEM, " a + 2").value for _ in range(2)] == [None, 1.0]


THREE = ProblemSpec(
    id="add/3",
    prompt="def f(a):\n    # f(1) is 3\n    return",
    tests={"function": "f", "cases": [{"args": [n], "expected": n + 2} for n in (1, 5, 9)]},
)


def test_the_test_share_gives_credit_for_each_case(runner):
    scorer = TestShare(runner)
    assert scorer.score(THREE, " a + 2").value == 1.0
    assert scorer.score(THREE, " a + 2 if a < 9 else 0").value == pytest.approx(2 / 3)
    assert scorer.score(THREE, " 0").value == 0.0
    assert scorer.score(THREE, " a + 2 if a < 9 else 0").parts["passed"] == 2


def test_an_answer_that_dies_under_a_case_passed_none(runner):
    score = TestShare(runner).score(THREE, " a + 2 if a < 9 else __import__('os')._exit(0)")
    assert (score.value, score.parts["outcome"]) == (0.0, "crash")


def test_a_preparation_that_fails_fails_the_cases_it_was_for(runner):
    code = "assert f(1) == 3\nn = f(2)[0]\nassert f(n) == 4\nassert f(5) == 7"
    problem = ProblemSpec(id="x", prompt="def f(a):\n    return", tests={"function": "f", "code": code})
    assert TestShare(runner).score(problem, " a + 2").value == pytest.approx(1 / 3)


def test_generality_is_for_answers_that_do_more_than_recite(runner):
    scorer = Generality(runner)
    assert scorer.score(THREE, " a + 2").value == 1.0
    assert scorer.score(THREE, " {1: 3}[a]").value == 0.0
    assert scorer.score(THREE, " 7").value == 0.0  # as many as a constant
    assert scorer.score(THREE, " a +").value == 0.0
    assert scorer.score(THREE, " 7").explanation == (
        "passes 1 of 2 cases that the prompt does not show; a constant would pass 1"
    )


def test_generality_is_unscored_where_the_tests_could_not_tell(runner):
    score = Generality(runner).score(PROBLEM, " a + 2")
    assert (score.value, score.status) == (None, Status.UNSCORED)
    assert score.explanation.startswith("the tests cannot tell")


@pytest.mark.parametrize("scorer", [TestShare, Generality])
def test_a_fault_masks_these_too(scorer, sandbox):
    score = scorer(Runner(FlakySandbox(sandbox, num_faults=2))).score(THREE, " a + 2")
    assert (score.value, score.status) == (None, Status.INFRA)
    assert scorer(Runner(sandbox)).score(ProblemSpec(id="x", prompt=""), "").status is Status.UNSCORED


def test_all_that_run_the_output_run_it_once(sandbox):
    counting = FlakySandbox(sandbox, num_faults=0)
    runner = Runner(counting)
    for scorer in (UnitTests, TestShare, Generality, Executability):
        scorer(runner).score(THREE, " a + 2")
    assert counting.num_runs == 1


def test_scorers_are_found_by_name():
    assert [scorer_named(name).name for name in SCORERS] == list(SCORERS)
    with pytest.raises(ValueError, match="no scorer is called 'magic'"):
        scorer_named("magic")
