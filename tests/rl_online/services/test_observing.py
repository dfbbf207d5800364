"""What the rules of alarms are told."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.services import record_beat
from registry.models import Deployment
from registry.tenancy import tenant
from rl_online.alarms import Rule, Verdict
from rl_online.services.observing import findings
from tests.console import factories


@pytest.mark.parametrize(("up_for", "verdict"), [(5, Verdict.UNKNOWN), (600, Verdict.RAISED)])
def test_an_engine_has_its_minutes_to_speak_after_a_start(project, up_for, verdict):
    now = timezone.now()
    with tenant(project.id):
        factories.make_policy()
        Deployment.objects.update(changed_at=now - timedelta(days=1))
        record_beat("beat@host", "beat", pid=1, started_at=now - timedelta(seconds=up_for), version="1")
        found = {finding.rule: finding.verdict for finding in findings(project.id, now=now)}
    assert found[Rule.ENGINE_AWAY] is verdict
