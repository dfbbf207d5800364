"""A few samples trained for a look: the numbers are those of an update, and nothing is written."""

import pytest

from rl_online.rewards.batch import Batch
from rl_online.training.apply import UpdateCancelled, UpdateFailed
from rl_online.training.dry_run import DryRunRequest, run_dry
from tests.rl_online.training import tiny_update


@pytest.fixture
def request_of(tmp_path):
    """request_of(samples) -> a dry run of them on the tiny policy."""
    made = tiny_update.make_request(tmp_path)

    def make(samples, **changes) -> DryRunRequest:
        fields = {
            "parent_folder": made.parent_folder,
            "base_folder": None,
            "batch": Batch(digest="0" * 64, samples=samples),
            "lineage": (0, 1),
            "seed": 7,
            "device": "cpu",
            "config": made.config,
        }
        return DryRunRequest(**(fields | changes))

    return make


def test_two_steps_are_taken_and_the_second_shows_what_the_first_did(request_of, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    seen = run_dry(request_of(tiny_update.make_samples(8)), is_cancelled=lambda: False)
    assert len(seen.steps) == 2
    assert all({"loss", "kl", "ratio_mean", "reward", "grad_norm"} <= set(step) for step in seen.steps)
    assert (seen.device, seen.tokens_per_s > 0, seen.load_s > 0, seen.seconds > 0) == ("cpu", True, True, True)
    assert seen.peak_bytes > 50_000_000  # torch alone needs more
    assert sorted(tmp_path.rglob("*")) == before


def test_it_is_deterministic(request_of):
    samples = tiny_update.make_samples(8)
    first, second = (run_dry(request_of(samples), is_cancelled=lambda: False) for _ in range(2))
    assert first.steps == second.steps


def test_it_can_be_stopped_before_a_step(request_of):
    with pytest.raises(UpdateCancelled):
        run_dry(request_of(tiny_update.make_samples(8)), is_cancelled=lambda: True)


def test_samples_that_may_not_be_trained_on_fail_with_their_reasons(request_of):
    with pytest.raises(UpdateFailed, match="off_lineage"):
        run_dry(request_of(tiny_update.make_samples(4), lineage=(7, 8)), is_cancelled=lambda: False)
