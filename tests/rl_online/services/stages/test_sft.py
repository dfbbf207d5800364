"""Which answers are demonstrations, and what spends them."""

import pytest
from django.conf import settings

from feedback.models import Flag, ReviewResponse, Turn
from registry.tenancy import tenant
from rl_online.collecting import user_hash
from rl_online.models import BatchSample, LearningPlan, UpdateRun
from rl_online.rewards.batch import read_batch
from rl_online.selectors import checkpoints_of_user
from rl_online.services import promotion, runs, sealing, updates
from rl_online.services.dry_runs import start_dry_run
from rl_online.services.sealing import TooFewSamples

pytestmark = pytest.mark.django_db
FEW = {"at_least": 1}


@pytest.fixture
def start(project, policy):
    def make(kind: str = "sft", **options) -> UpdateRun:
        with tenant(project.id):
            return updates.trigger_update(policy, kind=kind, actor="ada", options=FEW | options)

    return make


@pytest.fixture
def preview(project, policy):
    def make(kind: str = "sft", **options):
        with tenant(project.id):
            return updates.preview_update(policy, kind=kind, options=options)

    return make


def call_gold(project, turn: Turn, verdict: str, *, reviewer: str = "ruth") -> None:
    with tenant(project.id):
        flag, _ = Flag.objects.get_or_create(turn=turn, rule="by_hand", defaults={"reason": "a look"})
        ReviewResponse.objects.create(
            flag=flag,
            submission="0199a3d1-0000-7000-8000-00000000abcd",
            reviewer=reviewer,
            resolution="fine",
            gold=verdict,
        )


def test_an_accepted_answer_is_imitated_with_the_tokens_it_was_sampled_with(judged, start):
    judged("accept", id="good"), judged("reject")
    run = start()
    (sample,) = read_batch(settings.HOME.batches / run.batch.digest).samples
    assert (sample.kind, sample.row["stage"], sample.row["turn"]) == ("ce", "sft", "good")
    assert (sample.token_ids, sample.mask) == ([5, 6, 7, 8, 0], [0, 0, 1, 1, 1])
    assert (run.kind, run.batch.kind, run.options["accepted"]) == ("sft", "sft", True)


def test_the_strongest_word_about_a_turn_is_its_source(project, judged, say_signal, preview):
    call_gold(project, judged("accept", id="accepted-and-gold"), "accept")
    call_gold(project, judged("accept", id="called-bad"), "reject")
    judged("accept", id="edited")
    say_signal("edited", "edit", text="y):")
    judged("accept", id="accepted")
    found = preview()
    assert found.sources == {"gold": 1, "edits": 1, "accepted": 1}
    assert found.num_excluded == {"called bad by a reviewer": 1}


def test_what_a_reviewer_once_called_bad_is_none_however_much_was_said_since(project, judged, preview):
    call_gold(project, judged("accept", id="bad"), "reject")
    call_gold(project, judged("reject", id="another"), "reject")
    assert (preview(at_most=1).num_ready, preview(at_most=1).num_excluded) == (0, {"called bad by a reviewer": 1})


def test_an_answer_called_good_is_none_where_another_reviewer_called_it_bad_before(project, judged, preview):
    torn = judged("accept", id="torn")
    call_gold(project, torn, "reject"), call_gold(project, torn, "accept", reviewer="sam")
    assert preview(at_most=1, accepted=False).num_ready == 0


@pytest.mark.parametrize(
    "turn", [{"source": "eval"}, {"version": None}, {"source": "import", "version": None}, {"finish_reason": "abort"}]
)
def test_what_nobody_may_learn_from_is_no_demonstration(judged, preview, turn):
    judged("accept", **turn)
    assert preview().num_ready == 0


def test_an_excluded_turn_is_no_demonstration(project, judged, preview):
    turn = judged("accept")
    with tenant(project.id):
        Turn.objects.filter(pk=turn.pk).update(is_excluded=True)
    assert (preview().num_ready, preview().num_excluded) == (0, {"excluded by a reviewer": 1})


def test_too_few_are_refused_with_how_many_more(project, policy, judged, start):
    judged("accept"), judged("accept")
    with pytest.raises(TooFewSamples, match="2 of 5 demonstrations ready, 3 more needed"):
        start(at_least=5)
    with tenant(project.id), pytest.raises(TooFewSamples, match="no pairs ready; one is enough for a dry run"):
        start_dry_run(policy, actor="ada", kind="pairs")


class TestSpending:
    """docs/decisions/0005: a turn is spent once for each kind."""

    def test_an_online_batch_and_a_demonstration_may_share_a_turn(self, project, policy, judged, start, trained):
        for signal in ("accept", "reject", "accept"):
            judged(signal)
        trained(start())
        with tenant(project.id):
            UpdateRun.objects.update(state="held")
            assert len(sealing.look(policy, kind="rl").candidates) == 3
            run = updates.trigger_update(policy, actor="ada")
            kinds = BatchSample.objects.filter(turn_ref="turn-001").values_list("kind", flat=True)
            assert (run.batch.num_samples, sorted(kinds)) == (3, ["online", "sft"])

    def test_the_same_kind_takes_a_turn_once(self, project, judged, start, trained, preview):
        judged("accept")
        trained(start())
        with tenant(project.id):
            UpdateRun.objects.update(state="held")
        assert preview().num_ready == 0

    def test_a_cancelled_one_gives_its_turns_back(self, project, judged, start, preview):
        judged("accept")
        run = start()
        assert preview().num_ready == 0
        with tenant(project.id):
            updates.cancel_update(run, actor="ada")
        assert preview().num_ready == 1

    def test_it_neither_resets_the_baselines_nor_the_clock_of_online_updates(
        self, project, policy, judged, start, promoted, trained
    ):
        judged("accept"), judged("accept")
        promoted()
        judged("accept", version=2)
        candidate = trained(start())
        with tenant(project.id):
            promotion.promote(candidate, actor="test", reason="a test")
            LearningPlan.objects.update(every_minutes=1)
        judged("reject", version=3), judged("reject", version=3)
        with tenant(project.id):
            prepared = sealing.prepare(sealing.look(policy), project.id)
        # past: 2 samples of .75 decayed by .7; now rewards .75, -.25 and -.25
        assert prepared.baselines[""] == pytest.approx({"total": 1.05 + 0.25, "count": 1.4 + 3})

    def test_a_demonstration_whose_label_changed_is_not_corrected(
        self, project, policy, judged, start, trained, say_signal
    ):
        judged("accept", id="turn")
        candidate = trained(start())
        with tenant(project.id):
            promotion.promote(candidate, actor="test", reason="a test")
        say_signal("turn", "undo")
        with tenant(project.id):
            pool = sealing.look(policy, kind="rl")
        assert [(one.turn.turn_id, one.is_correction) for one in pool.candidates] == [("turn", False)]

    def test_who_asks_what_learnt_from_a_person_is_told_of_every_kind(self, project, judged, start, trained):
        judged("accept", user="u")
        candidate = trained(start())
        with tenant(project.id):
            learnt = checkpoints_of_user(user_hash(project.id, "u"))
            assert [one.version for one in learnt] == [candidate.version]


def test_a_replay_keeps_the_kind(project, judged, start, trained, policy):
    judged("accept")
    run = start()
    trained(run)
    with tenant(project.id):
        UpdateRun.objects.update(state="held")
        again = updates.replay_update(run, actor="ada")
    assert (again.kind, again.options, again.is_replay) == ("sft", run.options, True)


def test_an_order_names_its_kind_and_inputs(project, judged, start):
    judged("accept")
    run = start()
    with tenant(project.id):
        order = runs.begin(run.id)
    assert (order.kind, order.inputs, order.folders) == ("sft", {}, {})
