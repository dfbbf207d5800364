"""A dry run is trained for real, by a function handed in here, and leaves nothing but its own row."""

import pytest

from jobs.models import Job
from jobs.services import claim_next
from registry.errors import Conflict
from registry.models import AuditEvent
from registry.tenancy import tenant
from rl_online.models import BatchSample, DryRun, RewardBatch, UpdateRun
from rl_online.rewards.batch import read_batch
from rl_online.services import sealing
from rl_online.services.dry_runs import (
    NUM_SAMPLES,
    Tried,
    cancel_dry_run,
    dry_run_job,
    find_dry_run,
    spread,
    start_dry_run,
)
from rl_online.services.sealing import TooFewSamples
from rl_online.services.updater import Cancelled, Hopeless

pytestmark = pytest.mark.django_db
SEEN = Tried(
    steps=[{"loss": 0.5, "kl": 0.0}, {"loss": 0.4, "kl": 0.01}],
    load_s=1.0,
    seconds=0.5,
    tokens_per_s=80.0,
    peak_bytes=123,
    device="cpu",
)


@pytest.fixture
def ready(judged) -> None:
    for signal in ("accept", "reject") * 6:
        judged(signal)


def start(project, policy, **options) -> DryRun:
    with tenant(project.id):
        return start_dry_run(policy, actor="ada", **options)


def handle(try_samples) -> None:
    job = claim_next(["updater"], "test")
    assert job is not None
    dry_run_job(job, try_samples, beat=lambda: None)


def reread(project, row: DryRun) -> DryRun:
    with tenant(project.id):
        return find_dry_run(row.id)


def test_eight_samples_are_sealed_aside_tried_and_forgotten(project, policy, ready, settings):
    row = start(project, policy, overrides={"learning_rate": 1e-4})
    tried = []

    def look(trial, should_stop):
        tried.append((read_batch(trial.batch_folder), trial))
        assert not should_stop()
        return SEEN

    handle(look)
    found = reread(project, row)
    assert (found.state, found.num_samples, found.steps, found.peak_bytes) == ("done", NUM_SAMPLES, SEEN.steps, 123)
    ((batch, trial),) = tried
    assert (len(batch.samples), trial.config["learning_rate"], trial.lineage) == (8, 1e-4, (1,))
    assert not trial.batch_folder.exists() and list(settings.HOME.root.glob(".dry-run-*")) == []


def test_nothing_is_spent_and_no_version_reserved(project, policy, ready):
    start(project, policy)
    handle(lambda trial, should_stop: SEEN)
    with tenant(project.id):
        assert len(sealing.look(policy).candidates) == 8  # the plan's max_turns, as before
        assert not (RewardBatch.objects.exists() or BatchSample.objects.exists() or UpdateRun.objects.exists())


def test_the_samples_are_spread_over_the_batch(project, policy, ready):
    with tenant(project.id):
        candidates = sealing.look(policy).candidates
    assert [candidates.index(one) for one in spread(candidates, num=3)] == [0, 2, 5]
    assert spread(candidates[:2], num=3) == candidates[:2]


def test_one_turn_is_enough_and_none_is_not(project, policy, judged):
    with pytest.raises(TooFewSamples, match="no labelled turns ready"):
        start(project, policy)
    judged("accept")
    row = start(project, policy)
    handle(lambda trial, should_stop: SEEN)
    assert reread(project, row).num_samples == 1


def test_one_at_a_time(project, policy, ready):
    start(project, policy)
    with pytest.raises(Conflict, match="is under way"):
        start(project, policy)


def test_a_queued_one_is_cancelled_at_once_and_never_tried(project, policy, ready):
    row = start(project, policy)
    with tenant(project.id):
        cancel_dry_run(row, actor="bob")
        with pytest.raises(Conflict, match="is over"):
            cancel_dry_run(row, actor="bob")
        assert AuditEvent.objects.get(verb="cancel", object_kind="dry run").actor == "bob"
    handle(lambda trial, should_stop: pytest.fail("it was cancelled"))
    assert reread(project, row).state == "cancelled"


def test_a_running_one_is_told_to_stop(project, policy, ready):
    row = start(project, policy)

    def until_stopped(trial, should_stop):
        with tenant(project.id):
            cancel_dry_run(row, actor="bob")
        assert should_stop()
        raise Cancelled

    handle(until_stopped)
    assert reread(project, row).state == "cancelled"


@pytest.mark.parametrize(
    ("error", "says"),
    [(Hopeless("the gradient was not finite"), "the gradient was not finite"), (MemoryError("no"), "MemoryError: no")],
)
def test_what_goes_wrong_is_its_answer(project, policy, ready, error, says):
    row = start(project, policy)

    def fail(trial, should_stop):
        raise error

    handle(fail)
    found = reread(project, row)
    assert (found.state, found.error) == ("failed", says)
    assert Job.objects.get(kind="rl_online.dry_run").state == "done"


def test_a_killed_updater_is_its_answer_too(project, policy, ready):
    row = start(project, policy)

    class Killed(BaseException):
        pass

    def die(trial, should_stop):
        raise Killed

    with pytest.raises(Killed):
        handle(die)
    Job.objects.filter(kind="rl_online.dry_run").update(state="queued")
    handle(lambda trial, should_stop: pytest.fail("it is not tried again"))
    found = reread(project, row)
    assert (found.state, found.error.startswith("the updater died")) == ("failed", True)
