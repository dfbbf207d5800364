"""What engines report, and what wakes when they hold more."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import Job
from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.models import EngineReport, UpdateRun
from rl_online.services import promotion
from rl_online.services.engines import record_about, record_report

pytestmark = pytest.mark.django_db
ABOUT = {"code_version": "1", "device": "cpu", "uptime_s": 10.0, "tokens_generated": 100, "running": 2, "waiting": 0}


def report(policy, *checkpoints: Checkpoint) -> None:
    held = [{"version": one.version, "tree_digest": one.tree_digest} for one in checkpoints]
    record_report("e1", policy.id, held=held, failed=[], about=ABOUT)


def test_a_rate_is_made_of_two_reports_that_lie_apart(project, policy):
    with tenant(project.id):
        assert record_about("e1", ABOUT).tokens_per_s is None
        assert record_about("e1", ABOUT | {"tokens_generated": 150}).tokens_per_s is None  # too soon
        EngineReport.objects.update(counted_at=timezone.now() - timedelta(seconds=10))
        found = record_about("e1", ABOUT | {"uptime_s": 20.0, "tokens_generated": 300})
        assert found.tokens_per_s == pytest.approx(20.0, rel=0.05)
        assert EngineReport.objects.count() == 1


def test_a_restarted_engine_counts_from_its_start(project, policy):
    with tenant(project.id):
        record_about("e1", ABOUT)
        EngineReport.objects.update(counted_at=timezone.now() - timedelta(seconds=10), tokens_per_s=5.0)
        found = record_about("e1", ABOUT | {"uptime_s": 1.0, "tokens_generated": 7})
    assert (found.tokens_per_s, found.tokens_counted) == (None, 7)


@pytest.fixture
def candidate(judged, sealed, trained) -> Checkpoint:
    judged("accept"), judged("reject")
    return trained(sealed())


def test_a_proof_that_waits_is_due_when_an_engine_holds_more(project, policy, candidate):
    later = timezone.now() + timedelta(minutes=1)
    Job.objects.filter(kind="rl_online.prove").update(run_at=later)
    with tenant(project.id):
        report(policy, candidate)
        assert Job.objects.get(kind="rl_online.prove").run_at <= timezone.now()
        Job.objects.filter(kind="rl_online.prove").update(run_at=later)
        report(policy, candidate)  # nothing new is held
        assert Job.objects.get(kind="rl_online.prove").run_at == later


def test_the_swap_ends_when_the_promoted_checkpoint_is_held(project, policy, candidate):
    with tenant(project.id):
        promotion.promote(candidate, actor="ada", reason="a test")
        assert "swap" not in UpdateRun.objects.get().timings
        report(policy, candidate)
        swap = UpdateRun.objects.get().timings["swap"]
        assert 0 <= swap < 60
        report(policy)
        report(policy, candidate)
        assert UpdateRun.objects.get().timings["swap"] == swap
