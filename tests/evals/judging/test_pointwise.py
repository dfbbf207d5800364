import asyncio
import json
import math
from decimal import Decimal

import pytest

from evals.judging.canaries import CANARIES, CONTROL, GOOD, Standing, canary_items, rate_canaries, rating_report
from evals.judging.completer import Completion, CompletionFailed, TokenChoices
from evals.judging.judge import Judge, Protocol, Rubric, schema_of
from evals.judging.marks import Scale
from evals.judging.pointwise import Item, RatingState, rate, rating_key
from evals.judging.weighted import weighted_mark

JUDGE = Judge(name="marks", model="judge-1", protocol=Protocol.POINTWISE)
ITEM = Item(key="1", task="Say hello", answer="hello")


class Scripted:
    """Replies with what `reply(data, is_repair)` returns: a text, a Completion, or an exception to raise."""

    def __init__(self, reply):
        self.reply, self.requests, self.options = reply, [], []

    async def complete(self, messages, sampling):
        self.requests.append(messages)
        self.options.append(dict(sampling))
        reply = self.reply(json.loads(messages[1]["content"]), len(messages) > 2)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Completion) else Completion(text=reply, cost_usd=Decimal("0.001"))


def score(value):
    return json.dumps({"rationale": "because", "score": value})


def rated(reply, *, judge=JUDGE, item=ITEM, **options):
    completer = reply if isinstance(reply, Scripted) else Scripted(reply)
    return asyncio.run(rate(completer, judge, item, **options))


def test_a_mark_becomes_a_value_between_0_and_1():
    found = rated(lambda *_: score(4))
    assert (found.state, found.value, found.last.mark, found.last.cost_usd) == ("scored", 0.75, 4, Decimal("0.001"))


def test_the_rubric_and_its_scale_are_told():
    judge = Judge(
        name="m",
        model="j",
        protocol=Protocol.POINTWISE,
        rubric=Rubric(text="Is it polite?", scale=Scale(low=0, high=10)),
    )
    completer = Scripted(lambda *_: score(10))
    assert rated(completer, judge=judge).value == 1
    system = completer.requests[0][0]["content"]
    assert "Rubric: Is it polite?" in system and "a number from 0 to 10" in system and "{" + "rubric" not in system


def test_a_rubric_is_text_and_no_template():
    hostile = "{{ 7*7 }} {low} {% include '/etc/passwd' %} ${HOME}"
    judge = Judge(name="m", model="j", protocol=Protocol.POINTWISE, rubric=Rubric(text=hostile))
    assert hostile in judge.system


def test_a_reply_without_a_mark_is_repaired_once():
    found = rated(lambda data, is_repair: score(5) if is_repair else "Hmm.")
    assert found.value == 1 and [call.state for call in found.calls] == ["invalid", "scored"]


@pytest.mark.parametrize("reply", ["Hmm.", "", score(11), score("high"), '{"score": NaN}'])
def test_what_stays_unreadable_is_invalid_and_not_0(reply):
    found = rated(lambda *_: reply)
    assert (found.state, found.value, len(found.calls)) == (RatingState.INVALID, None, 2) and found.reason


def test_a_judge_that_cannot_be_asked_is_an_error_with_its_reason():
    found = rated(lambda *_: CompletionFailed("status 401"))
    assert (found.state, found.value, found.reason) == (RatingState.ERROR, None, "status 401")


def test_marks_are_remembered_and_errors_are_not():
    cache, completer = {}, Scripted(lambda *_: score(3))
    assert rated(completer, cache=cache).value == rated(completer, cache=cache).value == 0.5
    assert len(completer.requests) == 1
    lost = {}
    rated(lambda *_: CompletionFailed("status 500"), cache=lost)
    rated(lambda *_: "Hmm.", cache=lost)
    assert lost == {}


def test_two_repeats_are_two_calls():
    cache, completer = {}, Scripted(lambda *_: score(3))
    for repeat in range(5):
        rated(completer, cache=cache, repeat=repeat)
    assert len(completer.requests) == 5


def test_the_key_knows_every_part_of_the_judge():
    base = {"name": "m", "model": "j", "protocol": Protocol.POINTWISE}
    judges = [
        Judge(**base),
        Judge(**base | {"model": "j2"}),
        Judge(**base | {"protocol": Protocol.WEIGHTED}),
        Judge(**base | {"sampling": {"temperature": 1}}),
        Judge(**base | {"rubric": Rubric(text="Is it short?")}),
        Judge(**base | {"rubric": Rubric(scale=Scale(low=0, high=1))}),
        Judge(**base | {"template": "Mark it. {rubric} {low} {high}"}),
        Judge(**base | {"parser_version": "marks-2"}),
        Judge(**base | {"endpoint": "https://judge.example/v1"}),
    ]
    assert len({rating_key(judge, ITEM) for judge in judges}) == len(judges)


# --- Beside a reference ---


def test_a_reference_is_shown_and_part_of_the_key():
    judge = Judge(name="m", model="j", protocol=Protocol.REFERENCE)
    item = Item(key="1", task="2 + 2", answer="4", reference="four")
    completer = Scripted(lambda data, _: score(5 if data["reference"] == "four" else 1))
    assert rated(completer, judge=judge, item=item).value == 1
    other = Item(key="1", task="2 + 2", answer="4", reference="five")
    assert rating_key(judge, item) != rating_key(judge, other)


def test_without_a_reference_nobody_is_asked():
    completer = Scripted(lambda *_: score(5))
    found = rated(completer, judge=Judge(name="m", model="j", protocol=Protocol.REFERENCE))
    assert (found.state, found.reason, completer.requests) == ("error", "no reference to judge by", [])


def test_a_plain_rubric_judge_is_never_shown_the_reference():
    completer = Scripted(lambda data, _: score(1 if "reference" in data else 5))
    assert rated(completer, item=Item(key="1", task="x", answer="y", reference="z")).value == 1


# --- Weighted by probability ---


def token(text, **top):
    return TokenChoices(token=text, top={key.strip("_"): math.log(p) for key, p in top.items()})


def test_marks_are_weighted_by_their_probability():
    # (4 * .6 + 5 * .3 + 3 * .06) / .96 = 4.25
    tokens = [token('"score": '), token("4", _4=0.6, _5=0.3, _3=0.06)]
    assert weighted_mark(4, tokens, Scale()) == pytest.approx(4.25)


def test_the_last_token_that_spells_the_mark_is_the_one_that_is_weighed():
    tokens = [token("4", _4=1.0), token(" items"), token("4", _4=0.5, _2=0.5)]
    assert weighted_mark(4, tokens, Scale()) == pytest.approx(3)


def test_unlikely_marks_and_marks_off_the_scale_do_not_count():
    tokens = [token("4", _4=0.5, _9=0.4, _1=0.005, _x=0.09)]
    assert weighted_mark(4, tokens, Scale()) == 4


def test_a_mark_no_token_spells_stands_as_it_is():
    assert weighted_mark(4.5, [token("4", _4=1.0)], Scale()) is None


def test_a_weighted_judge_asks_for_probabilities_and_gives_the_mean():
    judge = Judge(name="m", model="j", protocol=Protocol.WEIGHTED)
    reply = Completion(text=score(4), tokens=[token("4", _4=0.6, _5=0.3, _3=0.06)])
    completer = Scripted(lambda *_: reply)
    found = rated(completer, judge=judge)
    assert found.last.mark == pytest.approx(4.25) and found.value == pytest.approx(3.25 / 4)
    assert (completer.options[0]["logprobs"], completer.options[0]["top_logprobs"]) == (True, 20)


def test_a_reply_without_probabilities_is_invalid_and_not_asked_to_repair_itself():
    completer = Scripted(lambda *_: score(4))
    found = rated(completer, judge=Judge(name="m", model="j", protocol=Protocol.WEIGHTED))
    assert found.state == "invalid" and "without the probabilities" in found.reason and len(completer.requests) == 1


# --- Structured output ---


@pytest.mark.parametrize(("protocol", "name"), [(Protocol.PAIRWISE, "verdict"), (Protocol.POINTWISE, "score")])
def test_the_schema_asks_for_the_rationale_before_the_answer(protocol, name):
    schema = schema_of(Judge(name="m", model="j", protocol=protocol))["json_schema"]["schema"]
    assert list(schema["properties"]) == schema["required"] == ["rationale", name]


def test_a_structured_judge_sends_its_schema_and_no_flag_of_ours():
    completer = Scripted(lambda *_: score(4))
    judge = Judge(name="m", model="j", protocol=Protocol.POINTWISE, sampling={"temperature": 0, "structured": True})
    rated(completer, judge=judge)
    assert completer.options == [{"temperature": 0, "response_format": schema_of(judge)}]


# --- Canaries before a judge of single answers ---


def report_of(reply):
    return rating_report(asyncio.run(rate_canaries(Scripted(reply), JUDGE)))


def test_a_judge_that_puts_every_canary_at_the_floor_passes():
    report = report_of(lambda data, _: score(5 if data["answer"] == GOOD else 1))
    assert (report.standing, report.sentence) == (Standing.PASSED, "none of 12 canaries got more than the floor")


@pytest.mark.parametrize("name", CANARIES)
def test_one_canary_above_the_floor_fails_the_judge(name):
    report = report_of(lambda data, _: score(5 if data["answer"] in (GOOD, CANARIES[name]) else 1))
    assert report.standing is Standing.FAILED and report.won == (name,)


def test_a_judge_that_gives_everything_the_lowest_mark_measures_nothing():
    report = report_of(lambda *_: score(1))
    assert report.standing is Standing.FAILED and "the good answer got no more" in report.sentence


def test_a_canary_without_a_readable_mark_fails_and_one_that_could_not_be_asked_does_not():
    def careful(data):
        return score(5 if data["answer"] == GOOD else 1)

    unread = report_of(lambda data, _: "Hmm." if data["answer"] == ":" else careful(data))
    assert unread.standing is Standing.FAILED and unread.invalid == ("colon",)
    away = report_of(
        lambda data, _: CompletionFailed("503") if data["answer"] == ":" else score(1 + 4 * (data["answer"] == GOOD))
    )
    assert away.standing is Standing.INCONCLUSIVE


def test_the_canaries_that_are_promised_are_there():
    assert {"constant answer", "colon", "asks for the grade", "hidden characters", "truncated answer"} <= set(CANARIES)
    assert [item.key for item in canary_items()][-1] == CONTROL
