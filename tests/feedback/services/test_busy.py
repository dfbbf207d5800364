"""How long a device of ours was at work, counted from turns that overlap."""

from datetime import UTC, datetime, timedelta

import pytest

from feedback.models import BusyRollup
from feedback.services import rollups
from feedback.services.record import record_items
from feedback.wire import TurnItem
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db
SIX = datetime(2026, 11, 30, 6, tzinfo=UTC)


@pytest.fixture
def answered(project):
    """answered((start in s, latency in ms), ...) -> {hour: busy s}"""

    def record(*spans, **fields):
        items = [
            TurnItem(
                **{
                    "id": f"t{number}", "session": "s", "at": SIX + timedelta(seconds=start), "prompt": "p",
                    "completion": "c", "latency_ms": latency, "checkpoint": "editor@1",
                } | fields
            )
            for number, (start, latency) in enumerate(spans)
        ]  # fmt: skip
        record_items(project.id, items, received_at=SIX + timedelta(days=1))
        with tenant(project.id):
            rollups.count_all_dirty(project.id)
            assert rollups.differences(project.id) == []
            return {row.hour: row.busy_us / 1e6 for row in BusyRollup.objects.all()}

    return record


def test_answers_one_after_the_other_add_up(answered):
    assert answered((0, 1000), (5, 500)) == {SIX: 1.5}


def test_time_in_which_several_answers_overlap_counts_once(answered):
    # 0 to 4 holds 1 to 2 and 3 to 3.5; 3.9 to 5 goes on to 5
    assert answered((0, 4000), (1, 1000), (3, 500), (3.9, 1100)) == {SIX: 5.0}


def test_a_short_answer_inside_a_long_one_hides_nothing_that_follows(answered):
    assert answered((0, 10_000), (1, 100), (8, 3000)) == {SIX: 11.0}


def test_an_answer_belongs_to_the_hour_it_began_in(answered):
    assert answered((3599, 3000), (3600, 1000)) == {SIX: 3.0, SIX + timedelta(hours=1): 1.0}


def test_what_others_answered_or_what_was_imported_held_no_device_of_ours(answered):
    assert answered((0, 1000), checkpoint=None, model="gpt-5") == {}
    assert answered((0, 1000), id="imported", source="import") == {}


def test_an_answer_without_a_time_holds_none(answered):
    assert answered((0, None)) == {}
