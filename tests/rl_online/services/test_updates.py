"""Starting, cancelling and training updates, as rows; the training itself is handed in."""

import threading

import pytest

from jobs.models import Job
from jobs.services import ClaimedJob, NotYet, StaleFence, claim_next
from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, Checkpoint, Policy
from registry.tenancy import tenant
from rl_online.models import LearningPlan, UpdateRun
from rl_online.services import plans, promotion, runs, sealing, updater, updates
from rl_online.services.runs import StepRow
from rl_online.services.sealing import TooFewSamples, UpdateUnderWay

TRAINED = updater.Trained(tree_digest="2" * 64, num_bytes=9, optimizer_step=3, timings={"train": 1.5})


@pytest.fixture
def ready(judged) -> None:
    for signal in ("accept", "reject", "accept", "reject"):
        judged(signal)


@pytest.mark.django_db
class TestStarting:
    def test_the_loop_asks_for_a_batch_at_n_turns(self, project, policy, judged):
        for signal in ("accept", "reject", "accept"):
            judged(signal)
        with tenant(project.id):
            assert not updates.consider(policy).is_due
        judged("reject")
        with tenant(project.id):
            assert updates.consider(policy).is_due
        assert Job.objects.filter(kind="rl_online.seal_batch").count() == 1

    def test_a_settled_turn_has_every_plan_looked_at(self, policy, judged):
        judged("accept")
        assert Job.objects.get(kind="rl_online.consider").payload == {"policy": str(policy.id)}

    def test_a_person_may_start_one_while_learning_is_paused(self, project, policy, ready):
        with tenant(project.id):
            plans.pause_learning(policy, actor="ada")
            assert updates.consider(policy).reason == "learning is paused"
            run = updates.trigger_update(policy, actor="ada", overrides={"learning_rate": 1e-4})
        assert (run.trigger, run.requested_by, run.config["learning_rate"]) == ("person", "ada", 1e-4)

    def test_settings_that_do_not_fit_the_turns_are_refused_and_spend_none(self, project, policy, ready):
        by_group = {"policy_loss": "ppo_clip", "correction": "tis", "advantage": "rloo"}
        with tenant(project.id):
            with pytest.raises(InvalidInput, match="compares the answers of a group; 4 samples have none"):
                updates.trigger_update(policy, actor="ada", overrides=by_group)
            assert len(sealing.look(policy, kind="rl").candidates) == 4

    def test_a_preview_says_what_is_there_and_what_is_missing(self, project, policy, judged):
        judged("accept"), judged("reject", finish_reason="abort")
        with tenant(project.id):
            preview = updates.preview_update(policy)
            with pytest.raises(TooFewSamples, match="1 of 2 ready"):
                updates.trigger_update(policy, actor="ada")
        assert (preview.num_ready, preview.num_needed, preview.num_excluded) == (1, 2, {"cut off": 1})

    def test_a_replay_is_marked_and_takes_no_turn(self, project, policy, ready, trained):
        with tenant(project.id):
            run = updates.trigger_update(policy, actor="ada")
            with pytest.raises(UpdateUnderWay):
                updates.replay_update(run, actor="ada")
        candidate = trained(run)
        with tenant(project.id):
            promotion.promote(candidate, actor="ada", reason="a test")
            again = updates.replay_update(run, actor="ada")
        assert (again.is_replay, again.batch_id, again.version) == (True, run.batch_id, 3)

    def test_a_run_whose_job_was_given_up_has_failed(self, project, policy, ready):
        with tenant(project.id):
            run = updates.trigger_update(policy, actor="ada")
            Job.objects.filter(kind="rl_online.update").update(state="quarantined", last_error="out of memory")
            updates.fail_abandoned()
            run.refresh_from_db()
        assert (run.state, run.error) == ("failed", "out of memory")


@pytest.mark.django_db
class TestComingToNothing:
    def ended(self, run: UpdateRun) -> dict:
        return AuditEvent.objects.get(verb="end", object_id=str(run.id)).after

    def test_a_cancelled_update_gives_its_turns_back(self, project, policy, ready):
        with tenant(project.id):
            run = updates.trigger_update(policy, actor="ada")
            assert sealing.look(policy, kind="rl").candidates == []
            updates.cancel_update(run, actor="ada")
            assert self.ended(run) == {"state": "cancelled", "released_turns": 4}
            again = updates.trigger_update(policy, actor="ada")
            assert (again.batch_id, again.version, again.batch.samples.count()) == (run.batch_id, 3, 4)

    def test_a_teacher_that_nobody_named_is_refused_and_spends_none(self, project, policy, ready):
        with tenant(project.id):
            with pytest.raises(InvalidInput, match="the update names no teacher"):
                updates.trigger_update(policy, actor="ada", overrides={"distill_weight": 1.0})
            assert not UpdateRun.objects.exists()

    def test_a_replay_of_what_nothing_was_learnt_from_is_refused(self, project, policy, ready):
        with tenant(project.id):
            run = updates.trigger_update(policy, actor="ada")
            updates.cancel_update(run, actor="ada")
            with pytest.raises(Conflict, match="were given back; start a new update"):
                updates.replay_update(run, actor="ada")

    def test_a_failed_replay_keeps_the_turns_of_what_was_learnt(self, project, policy, ready, sealed, trained):
        run = sealed()
        candidate = trained(run)
        with tenant(project.id):
            promotion.promote(candidate, actor="ada", reason="a test")
            again = updates.replay_update(run, actor="ada")
            runs.end(again.id, "failed", error="no")
            assert self.ended(again) == {"state": "failed", "released_turns": 0}
            assert run.batch.samples.count() == 4

    def test_a_failed_proof_keeps_the_turns_that_its_checkpoint_learnt(self, project, ready, sealed, trained):
        run = sealed()
        trained(run)
        with tenant(project.id):
            Job.objects.filter(kind="rl_online.update").delete()
            Job.objects.filter(kind="rl_online.prove").update(state="quarantined", last_error="no")
            updates.fail_abandoned()
            assert self.ended(run) == {"state": "failed", "released_turns": 0}

    @pytest.mark.parametrize(
        "trigger, state, pauses",
        [("schedule", "failed", True), ("schedule", "cancelled", False), ("person", "failed", False)],
    )
    def test_only_a_failure_on_the_schedule_pauses_learning(self, project, policy, ready, trigger, state, pauses):
        with tenant(project.id):
            prepared = sealing.prepare(sealing.look(policy), project.id)
            run = sealing.open_update(prepared, trigger=trigger, requested_by="loop")
            runs.end(run.id, state, error="no")
            assert self.ended(run) == {"state": state, "released_turns": 4}
            assert LearningPlan.objects.get().is_paused is pauses
            reasons = AuditEvent.objects.filter(verb="pause").values_list("reason", flat=True)
            assert list(reasons) == (["an update failed"] if pauses else [])


@pytest.mark.django_db(transaction=True)
class TestTraining:
    @pytest.fixture
    def run(self, project, policy, ready) -> UpdateRun:
        with tenant(project.id):
            return updates.trigger_update(policy, actor="ada")

    @pytest.fixture
    def job(self, run) -> ClaimedJob:
        found = claim_next(["updater"], "test")
        assert found is not None
        return found

    def train(self, job: ClaimedJob, how, *, stopping: threading.Event | None = None) -> None:
        updater.update(job, how, stopping=stopping or threading.Event(), beat=lambda: None)

    def state(self, project, run) -> UpdateRun:
        with tenant(project.id):
            return UpdateRun.objects.get(id=run.id)

    def test_a_trained_run_has_a_candidate_and_a_proof_to_come(self, project, run, job):
        def how(order, on_step, should_stop):
            assert (order.version, order.parent_version, order.lineage, order.seed) == (2, 1, (1,), run.seed)
            for step in (1, 2, 3):
                on_step(StepRow(step=step, num_steps=3, metrics={"loss": 1 / step}, tokens_per_s=9, seconds_left=0))
            return TRAINED

        self.train(job, how)
        ended = self.state(project, run)
        with tenant(project.id):
            candidate = Checkpoint.objects.select_related("parent").get(version=2)
            losses = list(ended.metrics.order_by("step").values_list("values__loss", flat=True))
        assert (ended.state, ended.step, ended.checkpoint_id) == ("proving", 3, candidate.id)
        assert losses == [1.0, 0.5, 1 / 3]
        assert (candidate.state, candidate.parent.version, candidate.tree_digest) == ("candidate", 1, "2" * 64)
        assert Job.objects.filter(kind="rl_online.prove", state="queued").count() == 1
        assert Job.objects.get(kind="rl_online.update").state == "done"

    def test_a_cancelled_run_stops_and_makes_nothing(self, project, run, job):
        def how(order, on_step, should_stop):
            with tenant(project.id):
                updates.cancel_update(run, actor="ada")
            while not should_stop():
                pass
            raise updater.Cancelled

        self.train(job, how)
        assert self.state(project, run).state == "cancelled"

    def test_a_hopeless_run_fails_at_once_with_its_reason(self, project, run, job):
        def how(order, on_step, should_stop):
            raise updater.Hopeless("the gradient was not finite")

        self.train(job, how)
        ended = self.state(project, run)
        assert (ended.state, ended.error) == ("failed", "the gradient was not finite")

    def test_a_run_that_diverged_puts_its_batch_in_quarantine(self, project, policy, run, job):
        def how(order, on_step, should_stop):
            raise updater.Diverged("too far from its sampler in 3 steps in a row")

        self.train(job, how)
        assert self.state(project, run).state == "failed"
        with tenant(project.id):
            ended = AuditEvent.objects.get(verb="end", object_id=str(run.id)).after
            assert ended == {"state": "failed", "released_turns": 0, "quarantined_batch": run.batch.digest}
            assert sealing.look(policy, kind="rl").candidates == []
            again = updates.replay_update(run, actor="ada")
            updates.cancel_update(again, actor="ada")  # its turns led astray: however a replay ends, they stay
            assert again.is_replay and sealing.look(policy, kind="rl").candidates == []
            by_group = {"policy_loss": "ppo_clip", "correction": "tis", "advantage": "rloo"}
            with pytest.raises(InvalidInput, match="4 samples have none"):
                updates.replay_update(run, actor="ada", overrides=by_group)

    def test_an_accident_is_tried_again_and_fails_at_the_fifth(self, project, run, job):
        def how(order, on_step, should_stop):
            raise OSError("disk full")

        with pytest.raises(OSError):
            self.train(job, how)
        assert self.state(project, run).state == "training"
        job.attempts = 5
        self.train(job, how)
        assert self.state(project, run).error == "OSError: disk full"

    def test_a_stopped_updater_gives_the_run_back(self, project, run, job):
        stopping = threading.Event()

        def how(order, on_step, should_stop):
            stopping.set()
            while not should_stop():
                pass
            raise updater.Cancelled

        with pytest.raises(NotYet):
            self.train(job, how, stopping=stopping)
        assert self.state(project, run).state == "training"

    def test_an_updater_that_was_taken_over_writes_nothing(self, project, run, job):
        def how(order, on_step, should_stop):
            Job.objects.filter(id=job.id).update(fence=job.fence + 1)
            return TRAINED

        with pytest.raises(StaleFence):
            self.train(job, how)
        assert self.state(project, run).state == "training"
        with tenant(project.id):
            assert not Checkpoint.objects.filter(version=2).exists()

    def test_a_run_whose_parent_serves_no_more_is_held_before_it_starts(self, project, policy, promoted, judged):
        judged("accept"), judged("reject")
        promoted()
        judged("accept", version=2), judged("reject", version=2)
        with tenant(project.id):
            run = updates.trigger_update(policy, actor="ada")
            promotion.roll_back(policy, actor="ada", reason="worse")
            assert runs.begin(run.id) is None
            assert not run.batch.samples.exists()
        ended = self.state(project, run)
        assert (ended.state, ended.error) == ("held", "its parent editor@2 is no longer serving; editor@1 is")

    def test_only_a_queued_or_training_run_can_be_cancelled(self, project, run, job):
        self.train(job, lambda *_: TRAINED)
        with tenant(project.id), pytest.raises(Conflict):
            updates.cancel_update(run, actor="ada")


@pytest.mark.django_db
def test_changing_the_plan_is_checked_and_audited(project, policy: Policy):
    with tenant(project.id):
        plans.change_plan(policy, actor="ada", every_turns=6)
        assert LearningPlan.objects.get().every_turns == 6
        for wrong in ({"every_turns": 0}, {"every_turns": 9}, {"promotion": "never"}, {"gate_limits": {"x": 1}}):
            with pytest.raises(ValueError):
                plans.change_plan(policy, actor="ada", **wrong)
