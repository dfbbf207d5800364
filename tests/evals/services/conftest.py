import asyncio

import pytest

from evals.judging.completer import Completion, CompletionFailed
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark

HANGS_S = 60


class ScriptedCompleter:
    """Answers from a table or a function; remembers what it was asked. An exception in the table is raised.

    From its `hangs_after`th request on it does not answer any more.
    """

    def __init__(self, answer_of, *, delay_s=0.0, hangs_after=None):
        self.answer_of, self.delay_s, self.hangs_after = answer_of, delay_s, hangs_after
        self.asked, self.most_at_once, self._now = [], 0, 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def complete(self, prompt, sampling):
        self.asked.append(prompt)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            is_hung = self.hangs_after is not None and len(self.asked) > self.hangs_after
            await asyncio.sleep(HANGS_S if is_hung else self.delay_s)
            answer = self.answer_of(prompt)
        finally:
            self._now -= 1
        if isinstance(answer, Exception):
            raise answer
        return Completion(text=answer, usage={"input": 3, "output": 2}, latency_ms=1.0, origin="scripted@1")


@pytest.fixture
def scripted():
    """scripted(function or table) -> a completer."""

    def make(answers, **options):
        lookup = answers.__getitem__ if isinstance(answers, dict) else answers
        return ScriptedCompleter(lookup, **options)

    return make


@pytest.fixture
def failure():
    return CompletionFailed("status 503, 4 times")


def addition(n: int) -> ProblemSpec:
    return ProblemSpec(
        id=f"add/{n}",
        prompt=f"def add_{n}(a):\n    return",
        tests={"function": f"add_{n}", "cases": [{"args": [1], "expected": 1 + n}, {"args": [-n], "expected": 0}]},
        slices={"family": f"family {n % 3}", "half": "seen families"},
    )


@pytest.fixture
def benchmark(project):
    """adding@1: 20 problems of three families, held out; ` a + n` is right for problem add/n."""
    return create_benchmark(project.id, "adding", [addition(n) for n in range(20)])


@pytest.fixture
def right():
    """prompt -> the right continuation."""
    return lambda prompt: f" a + {prompt.partition('_')[2].partition('(')[0]}"
