"""What a sealed batch holds, and the rows that account for it."""

import pytest
from django.conf import settings
from django.db import IntegrityError, transaction

from feedback.models import Turn
from jobs.models import Job
from registry.errors import Conflict
from registry.models import Deployment
from registry.tenancy import tenant
from rl_online.models import BatchSample, LearningPlan, RewardBatch, UpdateRun
from rl_online.rewards.batch import read_batch
from rl_online.services import plans, promotion, sealing

pytestmark = pytest.mark.django_db


def batch_of(run: UpdateRun):
    return read_batch(settings.HOME.batches / run.batch.digest)


def test_the_batch_holds_tokens_logprobs_and_versions_as_they_were_sampled(project, judged, sealed):
    judged("accept", id="good", metadata={"slice": "sums"}, surface="completion", language="python", group="n-answers")
    judged("reject", id="bad")
    good, bad = batch_of(sealed()).samples
    assert (good.row["group"], "group" in bad.row) == ("n-answers", False)
    assert good.token_ids == [5, 6, 7, 8, 0]
    assert good.mask == [0, 0, 1, 1, 1]
    assert good.behaviour_logprobs == pytest.approx([0, 0, -0.1, -0.2, -0.3])
    assert good.versions == [-1, -1, 1, 1, 1]
    assert (good.reward, good.kind, good.row["turn"], good.row["slice"]) == (
        0.75,
        "rl",
        "good",
        "completion|python|sums",
    )
    assert good.row["reward_breakdown"]["label"]["outcome"] == "accept"


def test_the_baseline_leaves_the_sample_out_and_shrinks_to_the_batch(judged, sealed):
    judged("accept"), judged("reject")
    # one slice, rewards .75 and -.25: the other's reward over 1, plus 4 imaginary samples at the others' mean
    assert [sample.baseline for sample in batch_of(sealed()).samples] == pytest.approx([-0.25, 0.75])


def test_the_baseline_goes_on_from_the_last_batch_of_the_serving_line(project, policy, judged, sealed, promoted):
    judged("accept"), judged("accept")
    promoted()
    judged("reject", version=2), judged("reject", version=2)
    run = sealed()
    # past: 2 samples of .75 decayed by .7 -> sum 1.05 - .5, count 1.4 + 2
    assert run.batch.baselines[""] == pytest.approx({"total": 0.55, "count": 3.4})
    # and from the state before that batch once it is abandoned
    with tenant(project.id):
        UpdateRun.objects.filter(id=run.id).update(state="cancelled")
        promotion.roll_back(policy, actor="test", reason="worse")
    judged("accept"), judged("accept")
    assert sealed().batch.baselines[""] == pytest.approx({"total": 1.5, "count": 2.0})


def test_rows_account_for_the_batch(project, judged, sealed):
    judged("accept", id="good", user="u-1"), judged("reject", id="bad", user=None)
    judged("reject", finish_reason="abort")
    run = sealed()
    with tenant(project.id):
        batch = RewardBatch.objects.get()
        samples = {sample.turn_ref: sample for sample in BatchSample.objects.all()}
        job = Job.objects.get(kind="rl_online.update")
    assert (batch.kind, batch.num_samples, batch.num_tokens, batch.reward_mean) == ("rl", 2, 10, 0.25)
    assert batch.dropped == {"cut off": 1}
    assert samples["good"].reward == 0.75 and len(samples["good"].user_hash) == 64
    assert samples["bad"].user_hash is None
    assert (run.version, run.state, run.parent.version) == (2, "queued", 1)
    assert job.payload == {"run": str(run.id)} and job.queue == "updater"


def test_equal_turns_make_an_equal_batch_and_seed(project, policy, judged, sealed):
    judged("accept", id="a"), judged("reject", id="b")
    first = sealed()
    with tenant(project.id):
        pool = sealing.look(policy)
        assert pool.candidates == []
        BatchSample.objects.all().delete()
        again = sealing.prepare(sealing.look(policy), project.id)
    assert again.sealed.digest == first.batch.digest
    assert first.seed == sealing.seed_of(first.batch.digest, 2)


def test_too_few_turns_say_how_many_are_missing(project, policy, judged):
    judged("accept")
    with tenant(project.id), pytest.raises(sealing.TooFewSamples, match="1 of 2 ready, 1 more needed"):
        sealing.prepare(sealing.look(policy), project.id)


def test_a_second_update_is_refused_while_one_is_open(judged, sealed):
    judged("accept"), judged("reject")
    sealed()
    judged("accept"), judged("reject")
    with pytest.raises(sealing.UpdateUnderWay):
        sealed()


def test_an_update_sealed_before_the_line_moved_is_refused(project, policy, judged, promoted):
    judged("accept"), judged("reject")
    promoted()
    judged("accept", version=2), judged("reject", version=2)
    with tenant(project.id):
        prepared = sealing.prepare(sealing.look(policy), project.id)
        promotion.roll_back(policy, actor="test", reason="worse")
        with pytest.raises(Conflict, match="editor@2 is no longer serving"):
            sealing.open_update(prepared, trigger="person", requested_by="test")


def test_the_database_refuses_to_train_a_turn_twice(project, judged, sealed):
    judged("accept", id="once"), judged("reject")
    run = sealed()
    with tenant(project.id), pytest.raises(IntegrityError), transaction.atomic():
        BatchSample.objects.create(batch=run.batch, turn_ref="once", session_ref="s", reward=0)


def test_a_version_is_reserved_and_never_given_twice(project, judged, sealed):
    judged("accept"), judged("reject")
    run = sealed()
    with tenant(project.id):
        UpdateRun.objects.filter(id=run.id).update(state="failed")
    judged("accept"), judged("reject")
    assert sealed().version == 3


def test_a_correction_has_no_baseline_and_moves_no_running_mean(judged, promoted, sealed, say_signal):
    judged("accept", id="changed"), judged("reject")
    promoted()
    say_signal("changed", "undo")
    judged("accept", version=2), judged("accept", version=2)
    run = sealed()
    correction = next(sample for sample in batch_of(run).samples if sample.row["turn"] == "changed")
    assert (correction.reward, correction.baseline, correction.row["is_correction"]) == (-1.0, 0.0, True)
    # .7 x (.75 - .25) + 1.5 over .7 x 2 + 2
    assert run.batch.baselines[""] == pytest.approx({"total": 1.85, "count": 3.4})


def test_rows_and_batch_agree_on_what_is_only_measured_and_no_correction_is(
    project, policy, judged, promoted, sealed, say_signal
):
    judged("accept", id="changed"), judged("reject")
    promoted()
    say_signal("changed", "undo")
    with tenant(project.id):
        LearningPlan.objects.filter(policy=policy).update(max_turns=50)
    for _ in range(40):
        judged("accept", version=2)
    run = sealed()
    marked = {one.row["turn"] for one in read_batch(settings.HOME.batches / run.batch.digest).samples if one.is_heldout}
    with tenant(project.id):
        rows = BatchSample.objects.filter(batch=run.batch, is_heldout=True)
        assert {row.turn_ref for row in rows} == marked
        assert BatchSample.objects.get(batch=run.batch, is_correction=True).is_heldout is False
    assert len(marked) == 2


def test_nothing_is_set_aside_when_the_plan_says_so(project, policy, judged, sealed):
    with tenant(project.id):
        LearningPlan.objects.filter(policy=policy).update(max_turns=50, update_config={"heldout_samples": 0})
    for _ in range(20):
        judged("accept")
    run = sealed()
    with tenant(project.id):
        assert not BatchSample.objects.filter(batch=run.batch, is_heldout=True).exists()


def test_the_reward_spec_is_frozen_by_its_first_batch(project, judged, sealed):
    judged("accept"), judged("reject")
    spec = sealed().batch.reward_spec
    with tenant(project.id):
        spec.refresh_from_db()
    assert spec.frozen_at is not None


def test_a_turn_excluded_between_looking_and_labelling_is_not_sealed(project, policy, judged):
    first = judged("accept")
    judged("accept"), judged("reject")
    with tenant(project.id):
        Turn.objects.filter(pk=first.pk).update(is_excluded=True)
        prepared = sealing.prepare(sealing.look(policy), project.id)
    assert prepared.dropped == {"excluded by a reviewer": 1}
    assert prepared.sealed.num_samples == 2


def test_a_turn_whose_label_changed_since_the_look_waits_for_the_next_batch(project, policy, judged, say_signal):
    judged("accept", id="undone")
    judged("accept"), judged("reject")
    with tenant(project.id):
        pool = sealing.look(policy)
    say_signal("undone", "undo")
    with tenant(project.id):
        prepared = sealing.prepare(pool, project.id)
        assert "undone" in {one.turn.turn_id for one in sealing.look(policy).candidates}
    assert (prepared.sealed.num_samples, prepared.dropped) == (2, {"changed while it was sealed": 1})


def test_token_ids_outside_the_vocabulary_are_left_out_and_counted(project, policy, judged):
    judged("accept", id="last", completion_token_ids=[7, 9, 0]), judged("reject")
    judged("accept", completion_token_ids=[7, 10, 0]), judged("accept", prompt_token_ids=[5, 10])
    with tenant(project.id):
        folder = plans.folder_of(Deployment.objects.select_related("checkpoint").get(policy=policy).checkpoint)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"vocab_size": 10}')
        prepared = sealing.prepare(sealing.look(policy), project.id)
    assert prepared.dropped == {"token ids not of this model": 2}
    assert prepared.samples[0].token_ids == [5, 6, 7, 9, 0] and len(prepared.samples) == 2


def test_logprobs_that_no_model_gives_are_left_out_and_counted(project, policy, judged):
    judged("accept", logprobs=[0.0, -1e4, -0.3]), judged("reject")
    judged("accept", logprobs=[0.1, -0.2, -0.3]), judged("accept", logprobs=[-0.1, -10001.0, -0.3])
    with tenant(project.id):
        prepared = sealing.prepare(sealing.look(policy), project.id)
    assert prepared.dropped == {"logprobs out of range": 2} and len(prepared.samples) == 2
