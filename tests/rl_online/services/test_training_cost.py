"""What an update costs is the time that its processes held the device."""

from datetime import timedelta

import pytest
from django.utils import timezone

from feedback.rollups import hour_of
from registry.models import DeviceRollup
from registry.tenancy import tenant
from rl_online.models import UpdateRun
from rl_online.services import runs, updates
from rl_online.spending.ledger import ledger


@pytest.mark.django_db
def test_a_killed_update_costs_what_each_of_its_processes_took_and_not_the_time_between(
    project, policy, judged, monkeypatch
):
    # killed after ten minutes; two hours later another process trains the last four and publishes for one
    start = hour_of(timezone.now()) - timedelta(hours=4)

    def at(minutes):
        monkeypatch.setattr(timezone, "now", lambda: start + timedelta(minutes=minutes))

    for signal in ("accept", "reject", "accept", "reject"):
        judged(signal)
    with tenant(project.id):
        run = updates.trigger_update(policy, actor="ada")
        UpdateRun.objects.update(created_at=start)
        at(0)
        runs.begin(run.id)
        at(10)
        runs.record_steps(run.id, [])
        at(120)
        runs.begin(run.id)
        at(125)
        runs.record_steps(run.id, [])
        runs.finish(run.id, tree_digest="2" * 64, num_bytes=9, optimizer_step=3, timings={"train": 240.0})
        monkeypatch.undo()
        hours = [start + timedelta(hours=hour) for hour in range(3)]
        for hour in hours:
            DeviceRollup.objects.create(engine="engine-1", hour=hour, held_ms=3_600_000)
        book = ledger(hours[0], hours[2] + timedelta(hours=1))
        (entry,) = [one for one in book.entries if one.purpose == "training"]
        idle = [ledger(hour, hour + timedelta(hours=1)).idle.idle_seconds for hour in hours]
    assert (entry.name, entry.seconds) == ("editor@2", 600 + 240)
    assert idle == [3600 - 600, 3600, 3600 - 240]
