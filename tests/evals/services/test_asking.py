import time

import pytest

from evals.judging.completer import Completion
from evals.services.asking import answers
from tests.evals.services.conftest import HANGS_S

PROMPTS = {str(n): f"prompt {n}" for n in range(30)}


def test_every_prompt_is_answered_once_and_several_at_a_time(scripted):
    completer = scripted(str.upper, delay_s=0.01)
    found = dict(answers(completer, PROMPTS, {}, concurrency=8))
    assert {key: answer.text for key, answer in found.items()} == {key: p.upper() for key, p in PROMPTS.items()}
    assert sorted(completer.asked) == sorted(PROMPTS.values())
    assert completer.most_at_once == 8


def test_a_prompt_that_fails_does_not_stop_the_others(scripted, failure):
    completer = scripted(lambda prompt: failure if prompt == "prompt 3" else "ok")
    found = dict(answers(completer, PROMPTS, {}, concurrency=4))
    assert found["3"] is failure
    assert sum(isinstance(answer, Completion) for answer in found.values()) == 29


def test_leaving_early_cancels_what_is_being_asked(scripted):
    completer = scripted(str.upper, hangs_after=1)
    started = time.monotonic()
    asked = answers(completer, PROMPTS, {}, concurrency=2)
    next(asked)
    asked.close()
    assert time.monotonic() - started < HANGS_S / 2
    assert len(completer.asked) <= 3


def test_a_completer_that_hangs_is_left_at_the_deadline(scripted):
    started = time.monotonic()
    asked = answers(scripted(str.upper, hangs_after=0), PROMPTS, {}, concurrency=4, deadline=started + 0.2)
    assert list(asked) == []
    assert time.monotonic() - started < HANGS_S / 2


def test_once_none_may_start_those_that_are_open_are_still_waited_for(scripted):
    completer = scripted(str.upper, delay_s=0.01)
    found = dict(answers(completer, PROMPTS, {}, concurrency=4, may_start=lambda: len(completer.asked) < 6))
    assert {prompt.upper() for prompt in completer.asked} == {answer.text for answer in found.values()}
    assert 6 <= len(found) < len(PROMPTS)


def test_a_fault_of_the_completer_itself_is_not_swallowed(scripted):
    completer = scripted(lambda prompt: ZeroDivisionError("ours"))
    with pytest.raises(ExceptionGroup) as caught:
        list(answers(completer, PROMPTS, {}, concurrency=2))
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


def test_nothing_to_ask_is_no_answer(scripted):
    assert list(answers(scripted(str.upper), {}, {}, concurrency=4)) == []
