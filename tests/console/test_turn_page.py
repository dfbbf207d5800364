"""One turn's page: both levels of feedback, label, reward by component, lineage, cost, and its tokens."""

import asyncio
import re
from dataclasses import replace
from decimal import Decimal

import pytest
from django.conf import settings
from django.urls import reverse

from console.reads import tokens as token_reads
from console.reads import turn as reads
from evals.models import Problem
from feedback.models import Flag, ReviewResponse, Turn
from registry.models import PriceCard
from registry.services import audit
from registry.tenancy import tenant
from rl_online.models import BatchSample, RewardBatch
from rl_online.rewards.batch import Sample, seal_batch
from rl_online.services.reviewing import undo_review
from rl_online.serving.client import EngineClient
from tests.console import factories
from tests.console.engines import running_engine
from tests.console.sending import send, signal, turn, work_off


def page(client, turn_id, name="turn", **query) -> str:
    return client.get(reverse(f"console:{name}", args=["editor", turn_id]), query).content.decode()


@pytest.fixture
def policy(project):
    with tenant(project.id):
        return factories.make_policy()


@pytest.fixture
def learned(project, policy):
    """A turn whose batch lies sealed on disk and made editor@2, which serves."""
    with tenant(project.id):
        one = factories.make_turn("s")
        batch = factories.make_batch(policy, [one])
        sample = Sample(
            token_ids=[1, 2, 3, 4, 5, 2], prompt_length=3, mask=[0, 0, 0, 1, 1, 0],
            behaviour_logprobs=[0, 0, 0, -0.1, -0.7, 0], reward=0.75, baseline=0.2, versions=[-1, -1, -1, 1, 1, 1],
            row={
                "turn": one.turn_id, "kind": "rl",
                "reward_breakdown": {"label": {"outcome": "accept", "value": 0.75, "weight": 1.0, "part": 0.75}},
            },
        )  # fmt: skip
        RewardBatch.objects.filter(pk=batch.pk).update(digest=seal_batch([sample], settings.HOME.batches).digest)
        first = factories.Checkpoint.objects.get()
        second = factories.make_checkpoint(policy, 2, first, state="serving")
        factories.make_update(policy, batch, parent=first, version=2, checkpoint=second)
        factories.Deployment.objects.update(checkpoint=second, previous=first)
        audit(
            "promote", "checkpoint", second, actor="strop",
            before={"serving": "editor@1"}, after={"serving": "editor@2", "fence": 2},
        )  # fmt: skip
    return one


def test_g36_a_turn_shows_the_feedback_on_it_and_on_its_session_each_marked(as_owner, project, api_key):
    send(
        as_owner, api_key("ingest"), turn("t1"), turn("t2", index=1), signal("g1", "accept"),
        signal("g2", "reject", turn="t2"), signal("g3", "abandon", turn=None, session="s1"),
    )  # fmt: skip
    work_off(project)
    html = page(as_owner, "t1")
    own, rest = html.split("<h2>Feedback on its session")
    assert "signal-kind" in own and "abandon</span>" in rest and "reject</span>" not in html


def test_c14_a_zero_is_a_zero(as_owner, project, api_key):
    send(as_owner, api_key("ingest"), turn("t1"), signal("g1", "metric:kept", value=0))
    assert re.search(r"metric:kept 0</span>", page(as_owner, "t1"))


def test_the_rule_that_fired_and_the_signal_that_decides_are_named(as_owner, project, api_key):
    send(as_owner, api_key("ingest"), turn("t1"), signal("g1", "accept"), signal("g2", "undo", seconds=9))
    work_off(project)
    html = page(as_owner, "t1")
    assert "accepted, then undone" in html and html.count(">decides<") == 1 and "label recipe 1" in html


def test_what_learned_from_it_and_what_that_served_is_shown(as_owner, learned):
    html = page(as_owner, learned.turn_id)
    assert "update to editor@2" in html and "2 of 6, prompt included" in html and "state-serving" in html
    assert "+0.55" in html  # reward .75 less baseline .2


def test_the_reward_is_broken_down_as_it_was_sealed_and_as_it_would_be_now(project, learned):
    with tenant(project.id):
        found = reads.find_turn(learned.turn_id)
    (sealed,) = found.sealed
    assert [(part.name, part.part, part.note) for part in sealed.paid.components] == [("label", 0.75, "accept")]
    assert (found.standing.paid.spec, found.standing.paid.value) == ("default v1", 0.75)


def test_a_batch_whose_file_is_gone_leaves_the_breakdown_unknown(as_owner, project, policy):
    with tenant(project.id):
        one = factories.make_turn("s")
        factories.make_batch(policy, [one])
    assert "its breakdown is unknown" in page(as_owner, one.turn_id)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"outcome": None, "signals": ()}, "not settled"),
        ({"version": None}, "unknown origin"),
        ({"is_excluded": True}, "excluded by a reviewer"),
        ({}, "the next batch may take it"),
    ],
)
def test_why_nothing_learned_from_it_is_said(as_owner, project, policy, columns, said):
    with tenant(project.id):
        one = factories.make_turn("s", **columns)
    assert said in page(as_owner, one.turn_id)


def test_cost_is_that_of_the_card_valid_when_the_turn_was_made(project, policy):
    with tenant(project.id):
        one = factories.make_turn("s", version=None, model="gpt-x", input_tokens=100, output_tokens=10)
        for days, price in ((30, "2"), (-30, "9")):
            at = one.at - factories.timedelta(days=days)
            PriceCard.objects.create(model="gpt-x", valid_from=at, input_usd=Decimal(1), output_usd=Decimal(price))
        assert reads.cost_of_turn(one).usd == Decimal("0.00012")


def test_without_a_card_the_cost_is_unpriced_not_zero(as_owner, project, policy):
    with tenant(project.id):
        one = factories.make_turn("s")
        assert reads.cost_of_turn(one).usd is None
    assert "unpriced" in page(as_owner, one.turn_id)


def test_without_an_engine_the_tokens_are_ids_with_exact_probabilities(as_owner, project, learned):
    html = page(as_owner, learned.turn_id, "turn-tokens")
    assert "What the tokens say is unknown" in html and "<html" not in html
    assert "probability 0.9048, logprob -0.1" in html and "not trained" in html and "+0.55" in html


def test_trained_tokens_are_those_of_the_sealed_mask(project, learned):
    with tenant(project.id):
        found = token_reads.tokens_of(learned.turn_id)
    assert [token.is_trained for token in found.tokens] == [True, True, False]
    assert [token.shade for token in found.tokens] == ["0", "2", "1"] and found.tokens[0].version == 1


def test_tokens_with_credit_of_their_own_show_it():
    sample = Sample(
        token_ids=[5, 7, 8, 9], prompt_length=1, mask=[0, 1, 1, 0], behaviour_logprobs=None, reward=1.0, baseline=0.5,
        versions=[-1] * 4, row={"advantages": [0.0, 0.25, -0.75, 0.0]},
    )  # fmt: skip
    assert token_reads.advantages_of(sample, 3) == [0.25, -0.75, None]
    assert token_reads.advantages_of(replace(sample, row={}), 3) == [0.5, 0.5, None]
    assert token_reads.advantages_of(None, 2) == [None, None]


def test_a_turn_without_ids_says_so(as_owner, project, api_key):
    send(as_owner, api_key("ingest"), turn("t1"))
    assert "No token ids were recorded" in page(as_owner, "t1", "turn-tokens")


def test_hostile_text_is_text_and_a_peek_has_no_frame(as_owner, project, policy):
    hostile = "<script>alert(1)</script>\u202e"
    with tenant(project.id):
        one = factories.make_turn("s", completion=hostile, asked=hostile, user=hostile, surface=hostile)
    html = page(as_owner, one.turn_id, peek="1")
    assert "<script>alert" not in html and "U+202E" in html and "<html" not in html and "<aside" not in html


def test_a_turn_that_is_not_there_is_not_found(as_owner, project):
    for address in ("none-such", "~AA==", "none-such/tokens"):
        assert as_owner.get(f"/p/editor/turns/{address}").status_code == 404


def test_a_running_engine_says_what_the_tokens_say(project, policy, tmp_path):
    from tests.rl_online.serving import tiny

    folder = tiny.write_random(tmp_path, policy=str(policy.id))
    with tenant(project.id):
        one = factories.make_turn("s", completion="안!")
        ids = [*"안!".encode(), tiny.END]
        factories.TurnPayload.objects.filter(project_id=project.id, turn_id=one.turn_id).update(
            completion_token_ids=ids, logprobs=[-0.1] * len(ids), weight_versions=[[0, len(ids), 1]]
        )
    with running_engine("embedded") as socket:

        async def load():
            async with EngineClient(socket) as client:
                await client.load_full(f"{policy.id}@1", folder)

        asyncio.run(load())
        with tenant(project.id):
            found = token_reads.tokens_of(one.turn_id)
    assert [token.text for token in found.tokens] == ["", "", "안", "!", "<|im_end|>"]
    assert found.tokens[-1].is_special and not found.problem and not found.differs


def test_a_sample_is_found_by_its_turn_and_checked_by_its_own_digest(learned, project):
    from rl_online.rewards.batch import CorruptBatch, read_sample

    with tenant(project.id):
        folder = settings.HOME.batches / BatchSample.objects.select_related("batch").get().batch.digest
    assert read_sample(folder, learned.turn_id).reward == 0.75 and read_sample(folder, "another") is None
    rows = folder / "samples.jsonl"
    whole = rows.read_bytes()
    try:
        rows.write_bytes(whole.replace(b'"accept"', b'"reject"'))
        with pytest.raises(CorruptBatch):
            read_sample(folder, learned.turn_id)
    finally:
        rows.write_bytes(whole)


def test_a_turn_becomes_a_problem_from_its_page_and_leaves_training(as_owner, owner, project, learned):
    address = reverse("console:turn-problem", args=["editor", learned.turn_id])
    assert address in page(as_owner, learned.turn_id)
    said = as_owner.post(address, {"benchmark": "from turns"}, follow=True).content.decode()
    assert "Added to from turns@1. Training has seen it" in said and "excluded from training" in said
    with tenant(project.id):
        problem = Problem.objects.get()
        assert problem.benchmark.is_draft and problem.slices["learnt"] == "yes"
        assert ReviewResponse.objects.get().problem == f"from turns@1/{problem.problem_id}"
        undo_review(Flag.objects.get().pk, reviewer=owner.username)
        assert not Problem.objects.exists() and not Turn.objects.get(turn_id=learned.turn_id).is_excluded


def test_a_flagged_turn_becomes_a_problem_by_the_answer_to_its_flag(as_owner, project, learned):
    with tenant(project.id):
        flag = Flag.objects.create(turn=learned, rule="empty", reason="nothing was answered")
    address = reverse("console:turn-problem", args=["editor", learned.turn_id])
    html = page(as_owner, learned.turn_id)
    assert address not in html and reverse("console:review-item", args=["editor", flag.pk]) in html
    assert "it is flagged; answer the flag in Review" in as_owner.post(address, follow=True).content.decode()
    with tenant(project.id):
        assert not Problem.objects.exists() and Flag.objects.count() == 1


def test_who_may_not_review_is_offered_no_problem(client, viewer, learned):
    client.force_login(viewer)
    assert "Benchmark problem" not in page(client, learned.turn_id)
