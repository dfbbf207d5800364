"""What every scorer promises, whatever it is given."""

import pytest

from evals.scorers.code_quality import CodeQuality
from evals.scorers.execution import Runner
from evals.scorers.registry import SCORERS
from evals.scorers.scorer import ProblemSpec, Score, Status, unscored

TESTS = {
    "function": "f",
    "cases": [{"args": [1], "expected": 3}, {"args": [5], "expected": 7}],
    "efficiency": {
        "reference": "def f(a):\n    return sum(1 for _ in range(a)) + 2",
        "make": "def make(n): return [n]",
        "sizes": [20_000, 40_000, 80_000, 160_000],
    },
}
RAW = ProblemSpec(id="raw", prompt="def f(a):\n    return", tests=TESTS)
CHAT = ProblemSpec(id="chat", messages=[{"role": "user", "content": "write f"}], tests=TESTS)
ODD = ["", "\x00", "\ud800", "x" * 200_000, "(" * 5000, "```", "```python\n", "\ufeff", "안녕 👋", "\u2028", "#\r\n"]
RUN = ("executability", "unit_tests", "test_share", "generality")  # those that always have an answer


@pytest.fixture(params=SCORERS.values(), ids=SCORERS.keys())
def scorer(request, sandbox):
    return request.param() if request.param is CodeQuality else request.param(Runner(sandbox))


@pytest.mark.parametrize("output", ODD, ids=ascii)
@pytest.mark.parametrize("problem", [RAW, CHAT], ids=["raw", "chat"])
def test_any_text_is_measured_or_said_to_be_unmeasurable_and_none_is_an_error(scorer, problem, output):
    score = scorer.score(problem, output)
    assert score.explanation
    assert score.status is Status.SCORED or (score.status is Status.UNSCORED and scorer.name not in RUN)
    if scorer.name in RUN:
        assert score.value in (0.0, 1.0) and score.sandbox_level


@pytest.mark.parametrize(
    ("problem", "output"), [(RAW, " a + 2"), (CHAT, "```python\ndef f(a):\n    return a + 2\n```")]
)
def test_a_right_output_gets_everything(scorer, problem, output):
    assert scorer.score(problem, output).value == 1.0


def test_it_has_a_name_and_a_version_that_fit_their_columns(scorer):
    assert SCORERS[scorer.name] is type(scorer)
    assert 0 < len(scorer.version) <= 20


def test_a_score_has_a_value_exactly_when_it_is_scored():
    for status, value in ((Status.SCORED, None), (Status.INFRA, 0.0), (Status.SCORED, 1.5)):
        with pytest.raises(AssertionError):
            Score(value=value, status=status)
    assert unscored("no tests") == Score(value=None, status=Status.UNSCORED, explanation="no tests")
