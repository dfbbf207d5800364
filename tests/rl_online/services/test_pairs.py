"""Which preferences users and reviewers gave, as pairs of answers."""

import pytest
from django.utils import timezone

from evals.models import Benchmark, Comparison, Problem
from feedback.models import Flag, ReviewResponse, Turn
from registry.models import Deployment
from registry.tenancy import tenant
from rl_online.collecting import line_of
from rl_online.models import BatchSample, LearningPlan, RewardBatch
from rl_online.services import pairs
from rl_online.services.pairs import SOURCES, FoundPairs, find_pairs
from rl_online.services.reward_specs import latest_reward_spec

pytestmark = pytest.mark.django_db


@pytest.fixture
def find(project, policy):
    """find() -> the pairs of now, as (source, chosen, rejected), and why others are none."""

    def make(*sources: str, kind: str = "pairs", at_most: int = 10) -> tuple[list[tuple[str, str, str]], dict]:
        found = found_by(*sources, kind=kind, at_most=at_most)
        return [(one.source, *one.turn_ids) for one in found.pairs], found.dropped

    def found_by(*sources: str, kind: str, at_most: int) -> FoundPairs:
        with tenant(project.id):
            serving = Deployment.objects.get(policy=policy).checkpoint
            return find_pairs(line_of(policy, serving), kind=kind, sources=sources or SOURCES[:4], at_most=at_most)

    return make


@pytest.fixture
def call_gold(project):
    """call_gold(turn, "accept"): a reviewer's verdict."""

    def make(turn: Turn, verdict: str, *, reviewer: str = "ruth", **fields) -> None:
        with tenant(project.id):
            flag, _ = Flag.objects.get_or_create(turn=turn, rule="by_hand", defaults={"reason": "a look"})
            ReviewResponse.objects.create(
                flag=flag,
                submission="0199a3d1-0000-7000-8000-00000000abcd",
                reviewer=reviewer,
                resolution="fine",
                gold=verdict,
                **fields,
            )

    return make


def test_a_choice_is_the_one_answer_over_the_other(judged, say_signal, find):
    judged(None, id="a", completion="x)"), judged(None, id="b", completion="y)")
    say_signal("a", "preference", text="b")
    assert find() == ([("choices", "a", "b")], {})


def test_of_two_words_about_the_same_answers_the_newest_counts(judged, say_signal, find):
    judged(None, id="a", completion="x)"), judged(None, id="b", completion="y)")
    say_signal("a", "preference", text="b")
    say_signal("b", "preference", text="a")
    assert find() == ([("choices", "b", "a")], {"said otherwise later": 1})


def test_a_choice_that_was_superseded_is_none(judged, say_signal, find):
    judged(None, id="a", completion="x)"), judged(None, id="b", completion="y)")
    say_signal("a", "preference", text="b", id="mistake")
    say_signal("a", "comment", text="meant the other", supersedes="mistake")
    assert find() == ([], {})


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"prompt": "another"}, "prompts differ"),
        ({"completion": "x)"}, "answers are the same"),
        ({"finish_reason": "error", "error": "gone"}, "cut off"),
        ({"source": "eval"}, "the other answer is not here"),
        ({"version": None}, "the other answer is not here"),  # of unknown origin
    ],
)
def test_what_cannot_be_compared_or_learnt_from_is_counted(judged, say_signal, find, other, reason):
    judged(None, id="a", completion="x)")
    judged(None, **({"id": "b", "completion": "y)"} | other))
    say_signal("a", "preference", text="b")
    assert find() == ([], {reason: 1})


def test_a_turn_whose_text_is_gone_is_counted(project, judged, say_signal, find):
    from feedback.models import TurnPayload

    judged(None, id="a", completion="x)"), judged(None, id="b", completion="y)")
    say_signal("a", "preference", text="b")
    with tenant(project.id):
        TurnPayload.objects.filter(project_id=project.id, turn_id="b").delete()
    assert find() == ([], {"the text is gone": 1})


def test_an_edit_of_an_accepted_answer_is_over_the_answer(judged, say_signal, find):
    judged("accept", id="kept")
    say_signal("kept", "edit", text="first")
    say_signal("kept", "edit", text="last")
    judged("accept", id="undone")
    say_signal("undone", "edit", text="something")
    say_signal("undone", "undo")
    assert find()[0] == [("edits", "kept", "kept")]


def test_a_correction_is_over_the_answer_that_was_rejected(judged, say_signal, find):
    judged("reject", id="wrong")
    say_signal("wrong", "correction", text="right")
    assert find() == ([("edits", "wrong", "wrong")], {})


def test_what_was_accepted_after_a_retry_is_over_what_was_asked_again_for(judged, say_signal, find):
    for name, completion in (("first", "a"), ("second", "b"), ("third", "c")):
        judged(None, id=name, session="s", completion=completion)
    judged("accept", id="later", session="s", prompt="something else")
    say_signal("first", "retry"), say_signal("second", "retry"), say_signal("third", "accept")
    assert find("retries") == ([("retries", "third", "first"), ("retries", "third", "second")], {})


def test_reviewers_verdicts_make_a_pair_within_a_group(judged, call_gold, find):
    good, bad = judged(None, id="good", group="g", completion="x)"), judged(None, id="bad", group="g", completion="y)")
    torn = judged(None, id="torn", group="g", completion="z)")
    call_gold(good, "accept"), call_gold(bad, "reject")
    call_gold(torn, "reject"), call_gold(torn, "accept", reviewer="sam")
    late = judged(None, id="late", group="g", completion="w)")
    call_gold(late, "reject", is_late=True)
    assert find("reviews") == ([("reviews", "good", "bad")], {})


@pytest.fixture
def few_leads(monkeypatch):
    monkeypatch.setattr(pairs, "LOOKED_AT", 1)


def test_an_old_verdict_stands_against_a_new_one(judged, call_gold, find, few_leads):
    torn, bad = judged(None, id="torn", group="g", completion="x)"), judged(None, id="bad", group="g", completion="y)")
    call_gold(torn, "reject"), call_gold(bad, "reject"), call_gold(torn, "accept", reviewer="sam")
    assert find("reviews", at_most=2) == ([], {})


def test_reviews_that_were_learnt_from_leave_room_for_older_ones(project, policy, judged, call_gold, find, few_leads):
    for group in ("old", "new"):
        call_gold(judged(None, id=f"{group}-good", group=group, completion="x)"), "accept")
        call_gold(judged(None, id=f"{group}-bad", group=group, completion="y)"), "reject")
    with tenant(project.id):
        spec = latest_reward_spec()
        batch = RewardBatch.objects.create(
            digest="0" * 64, policy=policy, kind="pairs", reward_spec=spec, num_samples=1, num_tokens=1, reward_mean=0.0
        )
        BatchSample.objects.create(
            batch=batch, kind="pairs", turn_ref="new-bad", session_ref="", part="under:new-good", reward=0.0
        )
    assert find("reviews", at_most=1) == ([("reviews", "old-good", "old-bad")], {})


@pytest.fixture
def vote(project):
    """vote("bench") -> the name of a person's vote on a problem of that benchmark."""

    def make(name: str, *, version: int = 1, is_held_out: bool = False, rater: str = "") -> str:
        with tenant(project.id):
            benchmark = Benchmark.objects.create(name=name, version=version, is_held_out=is_held_out)
            problem = Problem.objects.create(benchmark=benchmark, problem_id="1", prompt="2 + 2 =")
            made = Comparison.objects.create(
                problem=problem, left="m", right="n", left_text="5", right_text="4", by="person", verdict="right",
                rater=rater,
            )  # fmt: skip
            return f"comparison:{made.pk}"

    return make


def test_votes_of_people_count_on_problems_that_are_not_held_out(vote, find):
    wanted = vote("open")
    vote("held-out", is_held_out=True)
    assert find("people") == ([("people", wanted, wanted)], {})
    assert find() == ([], {})


def test_a_vote_is_its_raters(project, policy, vote):
    vote("named", rater="ruth"), vote("nameless")
    with tenant(project.id):
        serving = Deployment.objects.get(policy=policy).checkpoint
        found = find_pairs(line_of(policy, serving), kind="pairs", sources=["people"], at_most=10)
    assert [one.user for one in found.pairs] == ["ruth", None]


def test_votes_on_what_a_gate_measures_by_are_never_learnt_from(project, vote, find):
    wanted = vote("open")
    vote("gate"), vote("gate", version=2), vote("further")
    with tenant(project.id):
        LearningPlan.objects.update(gate_benchmark="gate@1", gate_suites=[{"benchmark": "further@1"}])
    assert find("people") == ([("people", wanted, wanted)], {})


def test_only_the_newest_are_taken(judged, say_signal, find):
    now = timezone.now()
    for number in range(3):
        judged(None, id=f"a{number}", completion="x)"), judged(None, id=f"b{number}", completion="y)")
        say_signal(f"a{number}", "preference", text=f"b{number}", at=now)
    assert [chosen for _, chosen, _ in find(at_most=2)[0]] == ["a1", "a2"]
