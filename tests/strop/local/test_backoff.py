import pytest

from strop.local.backoff import Backoff


@pytest.mark.parametrize(("num_failures", "wanted_s"), [(1, 0.5), (2, 1), (3, 2), (6, 16), (7, 30), (1000, 30)])
def test_the_wait_doubles_up_to_half_a_minute(num_failures: int, wanted_s: float):
    assert Backoff().delay_s(num_failures) == wanted_s


def test_a_short_run_counts_as_one_failure_more():
    assert Backoff().failures_after(3, ran_s=29.9) == 4


def test_a_stable_run_starts_the_count_anew():
    assert Backoff().failures_after(3, ran_s=30) == 1
