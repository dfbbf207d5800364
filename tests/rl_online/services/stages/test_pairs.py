"""Pairs as a batch, and what spends them."""

import pytest
from django.conf import settings

from registry.tenancy import tenant
from rl_online.collecting import user_hash
from rl_online.models import BatchSample, UpdateRun
from rl_online.rewards.batch import read_batch
from rl_online.selectors import checkpoints_of_user
from rl_online.services import updates

pytestmark = pytest.mark.django_db


@pytest.fixture
def chosen(judged, say_signal):
    """chosen("b", "c"): answer `a` over each of these."""

    def make(*others: str) -> None:
        judged(None, id="a", completion="x)", completion_token_ids=[7, 0], logprobs=[-0.1, -0.2], weight_versions=[])
        for other in others:
            judged(None, id=other, completion=f"{other})")
            say_signal("a", "preference", text=other)

    return make


@pytest.fixture
def start(project, policy):
    def make(**overrides) -> UpdateRun:
        with tenant(project.id):
            return updates.trigger_update(
                policy, kind="pairs", actor="ada", options={"at_least": 1}, overrides=overrides
            )

    return make


def test_the_rejected_answer_points_at_the_chosen_one(chosen, start):
    chosen("b")
    run = start()
    better, worse = read_batch(settings.HOME.batches / run.batch.digest).samples
    assert (better.row["turn"], worse.row["turn"], better.pair, worse.pair) == ("a", "b", -1, 0)
    assert (better.token_ids, worse.token_ids) == ([5, 6, 7, 0], [5, 6, 7, 8, 0])
    assert (better.reward, worse.reward, set(worse.versions)) == (1.0, 0.0, {-1})
    assert (run.config["pref_loss"], run.batch.num_samples) == ("dpo", 2)


def test_an_answer_may_be_in_several_pairs_and_in_each_once(
    project, policy, chosen, start, trained, say_signal, judged
):
    chosen("b", "c")
    trained(start())
    with tenant(project.id):
        UpdateRun.objects.update(state="held")
        parts = set(BatchSample.objects.values_list("turn_ref", "part"))
        assert parts == {("a", "over:b"), ("b", "under:a"), ("a", "over:c"), ("c", "under:a")}
        assert updates.preview_update(policy, kind="pairs").num_ready == 0
    judged(None, id="d", completion="d)")
    say_signal("a", "preference", text="d")
    with tenant(project.id):
        assert updates.preview_update(policy, kind="pairs").sources == {"choices": 1}


def test_a_preference_is_its_givers_and_both_people_are_told_what_learnt_from_it(
    project, judged, say_signal, start, trained
):
    judged(None, id="a", user="asked", completion_token_ids=[7, 0], logprobs=[-0.1, -0.2], weight_versions=[])
    judged(None, id="b", user="asked", completion="y)")
    say_signal("a", "preference", text="b", user="chose")
    run = start()
    samples = read_batch(settings.HOME.batches / run.batch.digest).samples
    assert [one.row["user_hash"] for one in samples] == [user_hash(project.id, "chose")] * 2
    candidate = trained(run)
    with tenant(project.id):
        for user in ("asked", "chose"):
            assert [one.version for one in checkpoints_of_user(user_hash(project.id, user))] == [candidate.version]


def test_another_pair_loss_is_a_setting(chosen, start):
    chosen("b")
    assert start(pref_loss="cdpo", label_smoothing=0.1).config["pref_loss"] == "cdpo"


def test_settings_that_no_pair_fits_are_refused_and_spend_nothing(project, policy, chosen, start):
    from registry.errors import InvalidInput

    chosen("b")
    with pytest.raises(InvalidInput, match="label_smoothing"):
        start(label_smoothing=0.1)
    with tenant(project.id):
        assert not BatchSample.objects.exists()
