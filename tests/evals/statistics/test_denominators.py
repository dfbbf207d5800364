import pytest

from evals.statistics.denominators import pass_rates


def test_row_18_both_denominators_are_shown_by_name():
    found = pass_rates(passed=238, with_verdict=405, asked=445)
    assert (round(found.strict.value, 3), round(found.scoreable.value, 3)) == (0.535, 0.588)
    assert (found.strict.n, found.scoreable.n, found.num_without_verdict) == (445, 405, 40)
    assert found.scoreable.coverage == pytest.approx(405 / 445)


def test_row_18_trials_counted_twice_are_refused():
    # errored and completed overlap: 89 completed + 5 errored of 89
    with pytest.raises(ValueError, match="also when it both errored and completed"):
        pass_rates(passed=27, with_verdict=94, asked=89)


def test_row_17_resolved_is_of_all_that_was_asked_and_failures_of_the_machine_are_told():
    found = pass_rates(passed=1, with_verdict=2, asked=6)
    assert found.strict.value == pytest.approx(1 / 6)
    assert found.warning == "67 % of trials have no verdict"


def test_row_17_nothing_asked_is_no_data():
    found = pass_rates(passed=0, with_verdict=0, asked=0)
    assert (found.strict.value, found.strict.undefined, found.warning) == (None, "no data", "")


def test_no_trial_with_a_verdict_is_strictly_0_and_otherwise_unknown():
    found = pass_rates(passed=0, with_verdict=0, asked=8)
    assert (found.strict.value, found.scoreable.value) == (0.0, None)
    assert found.scoreable.undefined == "none of 8 is scored"


def test_terminal_bench_warns_where_most_trials_have_no_verdict():
    assert pass_rates(passed=9, with_verdict=17, asked=80).warning == "79 % of trials have no verdict"


def test_a_few_missing_verdicts_are_counted_without_a_warning():
    assert pass_rates(passed=144, with_verdict=399, asked=400).warning == ""


def test_a_public_harbor_run():
    # 5 errors among 89 trials, all of which have a reward: 27 / 89
    assert pass_rates(passed=27, with_verdict=89, asked=89).strict.value == pytest.approx(0.3033707865)
