"""Which turns teach, which are left out, and why."""

import pytest
from django.conf import settings
from django.utils import timezone

from feedback.models import Turn
from feedback.services.review import Answer, respond, undo
from feedback.services.review_queue import raise_flag
from registry.models import Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online import collecting
from rl_online.models import BatchSample, LearningPlan, UpdateState
from rl_online.rewards.batch import read_batch
from rl_online.rewards.composite import DEFAULT_BODY, parse_reward_spec
from rl_online.services import promotion, runs, sealing

pytestmark = pytest.mark.django_db

SPEC = parse_reward_spec(DEFAULT_BODY)
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 4, "logprobs_mode": "processed"}


@pytest.fixture
def collect(project, policy):
    def look(kind: str = "rl", *, max_lag: int = 4, max_turns: int = 8):
        with tenant(project.id):
            serving = Deployment.objects.get(policy=policy).checkpoint
            return collecting.collect(
                collecting.line_of(policy, serving), SPEC, kind=kind, max_lag=max_lag, max_turns=max_turns
            )

    return look


def rewards(collected) -> dict[str, float]:
    return {one.turn.turn_id: one.reward for one in collected.candidates}


def test_a_label_becomes_the_reward_of_the_recipe(judged, collect):
    judged("accept", id="good")
    judged("reject", id="bad")
    judged("ignore", id="seen")
    assert rewards(collect()) == {"good": 0.75, "bad": -0.25, "seen": 0.0}


def test_a_turn_that_has_not_settled_waits(judged, collect):
    judged(None)
    assert collect().candidates == []
    assert collect().dropped == {}


def test_a_reviewers_word_beats_the_recipe(project, judged, collect):
    turn = judged("accept", id="praised")
    with tenant(project.id):
        Turn.objects.filter(pk=turn.pk).update(reward_override=-1.0)
    assert rewards(collect()) == {"praised": -1.0}
    assert collect().candidates[0].breakdown["override"] == -1.0


def test_an_excluded_turn_is_left_out_and_counted(project, judged, collect):
    turn = judged("accept")
    with tenant(project.id):
        Turn.objects.filter(pk=turn.pk).update(is_excluded=True)
    assert collect().candidates == []
    assert collect().dropped == {"excluded by a reviewer": 1}


@pytest.mark.parametrize("source", ["eval", "judge", "playground", "import"])
def test_only_live_turns_feed_the_ratio_loss(judged, collect, source):
    judged("accept", source=source)
    judged("accept", id="simulated", source="simulated")
    assert rewards(collect()) == {"simulated": 0.75}


@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "logprobs_mode": "processed"}},
        {"sampling": {"temperature": 1.0, "top_p": 0.9, "top_k": 0, "logprobs_mode": "processed"}},
        {"sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 40, "logprobs_mode": "processed"}},
        {"sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "logprobs_mode": "raw"}},
        {"sampling": None},
        {"logprobs": None},
        {"completion_token_ids": None, "logprobs": None, "weight_versions": None},
    ],
)
def test_an_incomplete_sample_never_reaches_the_ratio_loss_but_may_reach_kto(judged, collect, fields):
    judged("accept", id="partial", **fields)
    assert collect("rl").dropped == {"incomplete": 1}
    assert rewards(collect("kto")) == {"partial": 0.75}


def test_kto_leaves_complete_samples_to_the_better_loss(judged, collect):
    judged("accept")
    assert collect("kto").dropped == {"complete": 1}


def test_kto_takes_imported_turns_of_named_models_only(judged, collect):
    bare = {"prompt_token_ids": None, "completion_token_ids": None, "logprobs": None, "weight_versions": None}
    judged("accept", version=None, id="theirs", model="GPT-4o", source="import", **bare)
    judged("accept", version=None, id="whose", source="import", **bare)
    assert rewards(collect("kto")) == {"theirs": 0.75}


def test_an_answer_that_was_cut_off_is_nobodys_choice(judged, collect):
    judged("reject", finish_reason="abort")
    judged("reject", finish_reason="error", error="engine gone")
    assert collect().dropped == {"cut off": 2}


def test_the_newest_turns_come_first_when_there_are_too_many(judged, collect):
    for name in ("one", "two", "three"):
        judged("accept", id=name)
    assert [one.turn.turn_id for one in collect(max_turns=2).candidates] == ["two", "three"]


def test_a_turn_older_than_the_lag_is_dropped_and_counted(judged, collect, promoted):
    judged("accept"), judged("reject")
    promoted()
    judged("accept", version=1, id="old")
    judged("accept", version=2, id="new")
    assert rewards(collect(max_lag=1)) == {"old": 0.75, "new": 0.75}
    assert rewards(collect(max_lag=0)) == {"new": 0.75}
    assert collect(max_lag=0).dropped == {"too old": 1}


def test_of_a_long_line_no_turn_is_looked_at_that_settled_before_its_recent_checkpoints(project, policy, judged):
    judged("accept", id="before")
    later = timezone.now()
    judged("accept", id="since", version=2)

    def found(num_checkpoints: int) -> collecting.Collected:
        line = [Checkpoint(version=num_checkpoints - lag, created_at=later) for lag in range(num_checkpoints)]
        with tenant(project.id):
            return collecting.collect(
                collecting.Line(policy=policy, checkpoints=line), SPEC, kind="rl", max_lag=4, max_turns=8
            )

    assert found(9).dropped == {"too old": 2}, "the whole line is recent, so nothing is bounded"
    assert found(10).dropped == {"too old": 1}
    assert rewards(found(6)) == {"since": 0.75}


def test_turns_of_an_abandoned_branch_are_not_trained_on(project, policy, judged, collect, promoted):
    judged("accept"), judged("reject")
    promoted()
    judged("accept", version=2)
    with tenant(project.id):
        promotion.roll_back(policy, actor="test", reason="worse")
    judged("accept", version=1, id="back")
    assert rewards(collect()) == {"back": 0.75}
    assert collect().dropped == {"abandoned branch": 1}


def test_a_turn_is_never_collected_again_once_it_is_in_a_batch(judged, collect, sealed):
    judged("accept"), judged("reject")
    sealed()
    assert collect().candidates == []


def test_another_project_sees_nothing(other_project, policy, judged):
    judged("accept")
    with tenant(other_project.id):
        assert Turn.objects.count() == 0


class TestCorrections:
    @pytest.fixture
    def corrections(self, project, policy):
        def look(max_lag: int = 4):
            with tenant(project.id):
                serving = Deployment.objects.get(policy=policy).checkpoint
                return collecting.corrections(collecting.line_of(policy, serving), SPEC, max_lag=max_lag)

        return look

    def test_an_undo_after_the_update_teaches_the_difference(self, judged, promoted, say_signal, corrections):
        judged("accept", id="changed"), judged("reject")
        promoted()
        say_signal("changed", "undo")
        # accept was worth .75, a reject is worth -.25
        assert rewards(corrections()) == {"changed": -1.0}
        assert corrections().candidates[0].is_correction

    def test_none_is_made_of_a_turn_that_was_only_measured(
        self, project, policy, judged, promoted, say_signal, corrections
    ):
        with tenant(project.id):
            LearningPlan.objects.filter(policy=policy).update(max_turns=50)
        for _ in range(20):
            judged("accept")
        promoted()
        with tenant(project.id):
            aside = BatchSample.objects.get(is_heldout=True).turn_ref
            taught = BatchSample.objects.filter(is_heldout=False).first().turn_ref
        say_signal(aside, "undo"), say_signal(taught, "undo")
        assert rewards(corrections()) == {taught: -1.0}
        assert corrections().dropped == {"correction of what was only measured": 1}

    def test_a_label_that_says_the_same_is_no_correction(self, judged, promoted, say_signal, corrections):
        judged("accept", id="same"), judged("reject")
        promoted()
        say_signal("same", "copy")
        assert corrections().candidates == []

    def test_it_is_dropped_when_the_serving_line_did_not_learn_the_original(
        self, project, policy, judged, promoted, say_signal, corrections
    ):
        judged("accept", id="changed"), judged("reject")
        promoted()
        with tenant(project.id):
            promotion.roll_back(policy, actor="test", reason="worse")
        say_signal("changed", "undo")
        assert corrections().candidates == []
        assert corrections().dropped == {"correction of what the serving line did not learn": 1}

    def test_it_is_dropped_when_the_turn_is_too_old(self, judged, promoted, say_signal, corrections):
        judged("accept", id="changed"), judged("reject")
        promoted()
        say_signal("changed", "undo")
        assert corrections(max_lag=0).dropped == {"correction too old": 1}

    def test_it_is_learnt_once(self, judged, promoted, say_signal, corrections):
        judged("accept", id="changed"), judged("reject")
        promoted()
        say_signal("changed", "undo")
        judged("accept", version=2), judged("reject", version=2)
        promoted()
        assert corrections().candidates == []

    def test_one_that_went_into_a_held_candidate_is_not_sent_again_and_counted(
        self, project, policy, judged, promoted, sealed, trained, say_signal, corrections
    ):
        judged("accept", id="changed"), judged("reject")
        promoted()
        say_signal("changed", "undo")
        judged("accept", version=2), judged("reject", version=2)
        run = sealed()
        assert (corrections().candidates, corrections().dropped) == ([], {})
        candidate = trained(run)
        assert corrections().dropped == {}
        with tenant(project.id):
            runs.end(run.id, UpdateState.HELD)
        spent = {"correction spent on a candidate that does not serve": 1}
        assert (corrections().candidates, corrections().dropped) == ([], spent)
        with tenant(project.id):
            promotion.promote(candidate, actor="test", reason="against the gate")
        assert corrections().dropped == {}

    def test_a_label_written_while_its_turn_was_sealed_is_not_lost(
        self, project, policy, judged, trained, say_signal, corrections
    ):
        judged("accept", id="changed"), judged("reject")
        with tenant(project.id):
            prepared = sealing.prepare(sealing.look(policy), project.id)
        say_signal("changed", "undo")
        with tenant(project.id):
            run = sealing.open_update(prepared, trigger="person", requested_by="test")
        checkpoint = trained(run)
        with tenant(project.id):
            promotion.promote(checkpoint, actor="test", reason="a test")
        assert rewards(corrections()) == {"changed": -1.0}

    def test_a_kto_batch_in_between_does_not_hide_it(self, judged, promoted, sealed, say_signal, corrections):
        judged("accept", id="changed"), judged("reject")
        promoted()
        say_signal("changed", "undo")
        narrowed = {**SAMPLING, "top_p": 0.5}
        judged("accept", version=2, sampling=narrowed), judged("reject", version=2, sampling=narrowed)
        assert sealed(kind="kto").batch.kind == "kto"
        assert rewards(corrections()) == {"changed": -1.0}


class TestOverridesAfterTraining:
    """A reviewer's word about a turn that was learnt already teaches the difference in the next batch."""

    @pytest.fixture
    def review(self, project):
        """review("turn", -1.0) overrides its reward; with None the answer is taken back."""
        flags = {}

        def act(turn_id: str, reward: float | None) -> None:
            with tenant(project.id):
                if reward is None:
                    undo(flags[turn_id], reviewer="ann")
                    return
                flags[turn_id] = flags.get(turn_id) or raise_flag(turn_id, reason="odd", raised_by="ann")
                respond(flags[turn_id], Answer(resolution="overridden", reward=reward), reviewer="ann")

        return act

    @pytest.fixture
    def corrections(self, project, policy):
        def look():
            with tenant(project.id):
                serving = Deployment.objects.get(policy=policy).checkpoint
                return collecting.corrections(collecting.line_of(policy, serving), SPEC, max_lag=4)

        return look

    def test_an_override_after_the_update_teaches_the_difference(self, judged, promoted, review, corrections):
        judged("accept", id="praised"), judged("reject")
        promoted()
        review("praised", -1.0)
        # it was learnt at .75
        assert rewards(corrections()) == {"praised": -1.75}
        assert corrections().candidates[0].breakdown["override"] == -1.0

    def test_it_is_sealed_into_the_next_batch_with_its_tokens_and_learnt_once(
        self, project, judged, promoted, sealed, review, corrections
    ):
        judged("accept", id="praised"), judged("reject")
        promoted()
        review("praised", -1.0)
        judged("accept", version=2), judged("reject", version=2)
        run = sealed()
        samples = {
            sample.row["turn"]: sample for sample in read_batch(settings.HOME.batches / run.batch.digest).samples
        }
        assert (samples["praised"].reward, samples["praised"].baseline) == (-1.75, 0.0)
        assert samples["praised"].token_ids == [5, 6, 7, 8, 0] and samples["praised"].row["is_correction"]
        with tenant(project.id):
            row = BatchSample.objects.get(batch=run.batch, turn_ref="praised")
        assert (row.is_correction, row.reward_revision) == (True, 1)
        assert corrections().candidates == []

    def test_an_override_before_the_update_is_no_correction(self, judged, promoted, review, corrections):
        judged("accept", id="praised"), judged("reject")
        review("praised", -1.0)
        promoted()
        assert corrections().candidates == []

    def test_taking_an_override_back_teaches_the_way_back(self, judged, promoted, review, corrections):
        judged("accept", id="praised"), judged("reject")
        promoted()
        review("praised", -1.0)
        judged("accept", version=2), judged("reject", version=2)
        promoted()
        review("praised", None)
        assert rewards(corrections()) == {"praised": 1.75}
        judged("accept", version=3), judged("reject", version=3)
        promoted()
        assert corrections().candidates == []

    def test_an_override_and_its_undo_before_the_next_batch_come_to_nothing(
        self, judged, promoted, review, corrections
    ):
        judged("accept", id="praised"), judged("reject")
        promoted()
        review("praised", -1.0), review("praised", None)
        assert corrections().candidates == []

    def test_an_override_while_its_turn_was_sealed_is_not_lost(
        self, project, policy, judged, trained, review, corrections
    ):
        judged("accept", id="praised"), judged("reject")
        with tenant(project.id):
            prepared = sealing.prepare(sealing.look(policy), project.id)
        review("praised", -1.0)
        with tenant(project.id):
            run = sealing.open_update(prepared, trigger="person", requested_by="test")
        checkpoint = trained(run)
        with tenant(project.id):
            promotion.promote(checkpoint, actor="test", reason="a test")
        assert rewards(corrections()) == {"praised": -1.75}

    def test_a_late_signal_changes_nothing_under_an_override(self, judged, promoted, review, say_signal, corrections):
        judged("accept", id="praised"), judged("reject")
        promoted()
        review("praised", 0.5)
        say_signal("praised", "undo")
        assert rewards(corrections()) == {"praised": -0.25}
