from datetime import UTC, datetime
from decimal import Decimal

import pytest

from feedback.models import Turn
from registry.models import PriceCard
from registry.tenancy import tenant
from rl_online.models import RewardBatch, UpdateRun
from rl_online.services import sealing
from rl_online.services.estimates import Spread, estimate, seconds_for

pytestmark = pytest.mark.django_db


def test_seconds_are_spread_between_the_fastest_and_the_slowest_run():
    assert seconds_for([100.0, 50.0, 200.0], 1000) == Spread(low=5.0, middle=10.0, high=20.0, num_runs=3)
    assert seconds_for([], 1000) is None


@pytest.fixture
def pool(project, policy, judged):
    """Two turns of 3 + 5 tokens that are ready, after one update of 16 tokens that took 4 seconds."""

    def look():
        with tenant(project.id):
            return sealing.look(policy)

    return look


def counted(project, *turns: Turn) -> None:
    with tenant(project.id):
        Turn.objects.filter(pk__in=[turn.pk for turn in turns]).update(
            input_tokens=2, cache_read_tokens=1, cache_write_tokens=0, output_tokens=5
        )


def test_without_a_measured_run_time_and_cost_are_unknown(project, judged, pool):
    counted(project, judged("accept"), judged("reject"))
    with tenant(project.id):
        found = estimate(pool())
    assert (found.num_samples, found.num_tokens, found.seconds, found.cost_usd) == (2, 16, None, None)
    assert [(one.checkpoint, one.lag, one.num_samples) for one in found.sources] == [("editor@1", 0, 2)]


def test_samples_nobody_counted_are_said_and_leave_the_time_unknown(project, judged, pool):
    counted(project, judged("accept"))
    judged("reject")
    with tenant(project.id):
        found = estimate(pool())
    assert (found.num_tokens, found.num_uncounted, found.seconds) == (8, 1, None)


def test_time_comes_from_the_last_runs_and_cost_from_the_devices_hour(project, policy, judged, promoted, pool):
    judged("accept"), judged("reject")
    promoted()
    counted(project, judged("accept", version=1), judged("reject", version=2))
    with tenant(project.id):
        UpdateRun.objects.update(timings={"train": 4.0})
        RewardBatch.objects.update(num_tokens=16)
        found = estimate(pool())
        assert found.seconds == Spread(low=4.0, middle=4.0, high=4.0, num_runs=1)
        assert found.cost_usd is None  # no card: unpriced, not free
        PriceCard.objects.create(
            model="own hardware", valid_from=datetime(2026, 1, 1, tzinfo=UTC), device_hour_usd=Decimal("3.6")
        )
        assert estimate(pool()).cost_usd == (Decimal("0.004"), Decimal("0.004"))
    assert [(one.checkpoint, one.lag) for one in found.sources] == [("editor@2", 0), ("editor@1", 1)]
