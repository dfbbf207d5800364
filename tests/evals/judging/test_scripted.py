import asyncio

import pytest

from evals.judging.completer import CompletionFailed
from evals.judging.judge import Judge, Protocol, Rubric
from evals.judging.marks import Scale
from evals.judging.pairwise import Pair, PairVerdict, judge_pair
from evals.judging.pointwise import Item, rate
from evals.judging.scripted import ScriptedCompleter


def test_the_longest_answer_wins_in_both_orders():
    pair = Pair(key="1", task="x", left="long answer", right="short")
    found = asyncio.run(judge_pair(ScriptedCompleter("longest"), Judge(name="longest", model="scripted/longest"), pair))
    assert found.verdict is PairVerdict.LEFT and sum(call.cost_usd for call in found.calls) == 0


@pytest.mark.parametrize(("answer", "value"), [("4 ", 1.0), ("5", 0.0)])
def test_the_reference_itself_gets_the_top_mark(answer, value):
    judge = Judge(
        name="same", model="scripted/same-as-reference", protocol=Protocol.REFERENCE, rubric=Rubric(scale=Scale())
    )
    item = Item(key="1", task="2 + 2", answer=answer, reference="4")
    assert asyncio.run(rate(ScriptedCompleter("same-as-reference", low=1, high=5), judge, item)).value == value


def test_a_rule_says_what_it_cannot_judge():
    judge = Judge(name="longest", model="scripted/longest", protocol=Protocol.POINTWISE)
    found = asyncio.run(rate(ScriptedCompleter("longest"), judge, Item(key="1", task="x", answer="y")))
    assert found.state == "error" and "cannot mark one" in found.reason
    with pytest.raises(CompletionFailed, match="judges' requests only"):
        asyncio.run(ScriptedCompleter("longest").complete("raw text", {}))
