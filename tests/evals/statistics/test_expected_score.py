import json
import math

import pytest

from evals.statistics.expected_score import expected_score


def test_a_score_is_weighed_by_the_judges_certainty(samples):
    vector = json.loads(samples("EXPECTED.json").read_text())["unit_vectors"]["g_eval"]
    assert expected_score(vector["top_logprobs"]) == pytest.approx(vector["expected"])


def test_tokens_that_are_no_score_or_too_rare_have_no_weight():
    logprobs = {"4": math.log(0.5), "9": math.log(0.4), "1": math.log(0.009), "good": math.log(0.05)}
    assert expected_score(logprobs, scores=range(1, 6)) == pytest.approx(4.0)


def test_without_a_score_among_the_tokens_there_is_none():
    assert expected_score({"good": -0.1}) is None
