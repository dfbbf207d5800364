"""The distillation stage: which answers it takes, what a hint is made of, what it seals, and an update of it."""

import asyncio
from decimal import Decimal

import pytest
import torch
from django.conf import settings
from django.db import connection
from django.utils import timezone
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from evals.models import Score
from feedback.models import Flag, ReviewResponse
from registry.errors import Conflict, InvalidInput
from registry.services import create_policy, register_checkpoint
from registry.tenancy import tenant
from rl_online.collecting import payloads_of
from rl_online.commands import updater
from rl_online.models import TeacherAnswer, UpdateRun
from rl_online.policy.load import load_policy
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.batch import read_batch
from rl_online.services import hints, runs, sealing
from rl_online.services.stages.distill import STAGE, drawing_lock
from rl_online.services.stages.starting import ask, prepare_stage
from rl_online.services.updates import trigger_update
from rl_online.serving.client import EngineClient
from rl_online.weights.manifest import read_manifest
from rl_online.weights.publish import adopt_folder
from tests.console.engines import running_engine

WORDS = [*(f"w{number}" for number in range(20)), "(Hint:", "shorter)", "shorter", "please", "w5)"]
FEW = {"at_least": 2}


@pytest.fixture(scope="module")
def engine():
    with running_engine("distill") as socket:
        yield socket


@pytest.fixture
def network(project, policy, tmp_path):
    """network("editor", version=1, words=WORDS) -> its folder, where the product looks for it."""

    def make(name="editor", *, version=1, words=WORDS, seed=0):
        with tenant(project.id):
            owner = policy if name == "editor" else create_policy(name, source="test", actor="test")
            source = build_tiny_policy(tmp_path / f"{name}-{version}", words, seed=seed, dtype=torch.float32)
            folder = settings.HOME.checkpoints / str(owner.id) / f"v{version:06d}"
            adopt_folder(source, folder, policy=str(owner.id), version=version)
            if name != "editor":
                register_checkpoint(
                    owner, version=version, parent=None, tree_digest=read_manifest(folder).tree_digest,
                    folder=f"{owner.id}/v{version:06d}", num_bytes=1, optimizer_step=0, actor="test", state="serving",
                )  # fmt: skip
        return folder

    return make


@pytest.fixture
def load(engine, policy):
    """load(folder) -> the policy's weights in the engine."""

    async def at(folder):
        async with EngineClient(engine) as client:
            await client.load_full(f"{policy.id}@1", folder)

    return lambda folder: asyncio.run(at(folder))


@pytest.fixture
def held(network, load):
    """The policy's weights on this machine, and in the engine."""
    folder = network()
    load(folder)
    return folder


@pytest.fixture
def answered(judged):
    """answered("accept", ...) -> a turn of two prompt tokens and an answer, in the tiny policy's words."""
    return lambda signal="accept", **fields: judged(signal, **{"prompt": "w3 w4", "completion": "w5 w6"} | fields)


def asked(policy, overrides=None, **options):
    return ask(STAGE, policy, options={**FEW, **options}, overrides=overrides)


def payloads(*turns):
    return payloads_of(turns)


def test_a_hint_is_what_reviewers_tests_and_users_said_of_the_answer(project, policy, answered, say_signal):
    turn, silent = answered(), answered()
    say_signal(turn.turn_id, "comment", text="shorter please", id="first")
    say_signal(turn.turn_id, "comment", text="much shorter please", supersedes="first")
    say_signal(turn.turn_id, "edit", text="w5\nw7")
    with tenant(project.id):
        flag = Flag.objects.create(turn=turn, rule="by_hand", reason="odd")
        for note, withdrawn in (("names are wrong", None), ("never mind", timezone.now())):
            ReviewResponse.objects.create(
                flag=flag, submission="0" * 31 + str(len(note) % 10), reviewer=note, resolution="fine", note=note,
                withdrawn_at=withdrawn,
            )  # fmt: skip
        for scorer, value, said in (("tests", 0.0, "f(2) is 3"), ("judge:strict", 0.0, "dull"), ("tests2", 1.0, "ok")):
            Score.objects.create(turn_ref=turn.turn_id, scorer=scorer, status="scored", value=value, explanation=said)
        found = hints.find_hints(payloads(turn, silent), sources=hints.SOURCES)
        assert found == {
            turn.turn_id: {
                "reviews": "names are wrong",
                "tests": "f(2) is 3",
                "comments": "much shorter please",
                "edits": "-w5 w6\n+w5\n+w7",
            }
        }
        assert list(found[turn.turn_id]) == list(hints.SOURCES)
        assert hints.find_hints(payloads(turn), sources=["tests"]) == {turn.turn_id: {"tests": "f(2) is 3"}}


def test_a_hint_stands_behind_what_the_user_asked_or_before_a_plain_text(project, policy, answered):
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "w3"}]
    tool = [*chat, {"role": "tool", "content": "w4"}]
    turns = [answered(), answered(prompt=None, messages=chat), answered(prompt=None, messages=tool)]
    with tenant(project.id):
        plain, spoken, called = (hints.hinted(payloads(turn)[turn.turn_id], "why") for turn in turns)
    assert plain.plain == "(Hint: why)\nw3 w4"
    assert spoken.messages == [chat[0], {"role": "user", "content": "w3\n\n(Hint: why)"}]
    assert called.messages == [*tool, {"role": "user", "content": "(Hint: why)"}]


def test_answers_without_a_hint_are_counted_and_any_answer_serves_another_teacher(
    project, policy, network, answered, say_signal
):
    network()
    network("big", seed=1)
    for _ in range(3):
        answered()
    say_signal(answered().turn_id, "comment", text="shorter")
    answered(version=9)
    with tenant(project.id):
        by_hint, by_other = STAGE.look(asked(policy)), STAGE.look(asked(policy, teacher="big@1"))
    assert (by_hint.num_ready, by_hint.num_excluded, by_hint.sources) == (1, {"no hint": 3}, {"comments": 1})
    assert (by_other.num_ready, by_other.num_excluded, by_other.sources) == (4, {}, {"answers": 4})


def test_a_sealed_answer_holds_what_its_teacher_reads(project, policy, held, answered, say_signal):
    for _ in range(2):
        say_signal(answered(prompt_token_ids=[5, 6]).turn_id, "comment", text="shorter")
    with tenant(project.id):
        alone = prepare_stage(STAGE, asked(policy)).samples
        with_reward = prepare_stage(STAGE, asked(policy, reward=True)).samples
    # Of the vocabulary <end>, <unk>, w0 ...: "(Hint: shorter)" before "w3 w4"
    assert alone[0].row["hinted_prompt"] == [22, 23, 5, 6] and alone[0].token_ids == [5, 6, 7, 8, 0]
    assert (alone[0].kind, alone[0].reward, alone[0].row["hints"]) == ("distill", 0.0, ["comments"])
    assert [(one.kind, one.reward) for one in with_reward] == [("rl", 0.75)] * 2
    assert alone[0].behaviour_logprobs == pytest.approx([0, 0, -0.1, -0.2, -0.3])


@pytest.mark.parametrize("teacher", ["hint", "big@1"])
def test_an_update_learns_from_the_teacher_and_spends_each_answer_once(
    project, policy, held, network, answered, say_signal, teacher
):
    network("big", seed=1)
    for _ in range(4):
        say_signal(answered().turn_id, "comment", text="shorter")
    with tenant(project.id):
        overrides = {"learning_rate": 1e-2, "max_kl": 0.0}  # the recorded log-probabilities are made up
        run = trigger_update(
            policy, actor="test", kind="distill", options={**FEW, "teacher": teacher}, overrides=overrides
        )
    assert run.inputs["teacher"] == teacher and run.kind == "distill"
    with tenant(project.id):
        order = runs.begin(run.id)
    steps = []
    trained = updater.train(order, steps.append, lambda: False)
    assert steps[-1].metrics["kl_teacher"] > 0 and steps[-1].metrics["is_applied"] == 1
    with tenant(project.id):
        runs.finish(
            run.id, tree_digest=trained.tree_digest, num_bytes=1, optimizer_step=1, timings=dict(trained.timings)
        )
        assert STAGE.look(asked(policy, teacher=teacher)).num_ready == 0
        assert len(read_batch(settings.HOME.batches / UpdateRun.objects.get(id=run.id).batch.digest).samples) == 4


@pytest.mark.parametrize(
    ("options", "overrides", "said"),
    [
        ({"teacher": "odd@1"}, {}, "splits text into other tokens"),
        ({"teacher": "editor@1"}, {}, "is the policy itself"),
        ({"teacher": "hint"}, {"distill_weight": 0.0}, "distill_weight is 0"),
        ({"teacher": "hint", **dict.fromkeys(hints.SOURCES, False)}, {}, "is off"),
        ({"teacher": "big@1"}, {"distill_estimator": "top_k"}, "choose distill_estimator logits"),
        ({"teacher": "hint", "answers": "fresh"}, {}, "about the answer that was given"),
        ({"teacher": "hint"}, {"distill_estimator": "sampled"}, "a teacher's log-probabilities"),
    ],
)
def test_what_cannot_teach_is_refused_before_anything_is_sealed(
    project, policy, held, network, answered, say_signal, options, overrides, said
):
    network("odd", words=[*reversed(WORDS)])
    network("big", seed=1)
    for _ in range(2):
        say_signal(answered().turn_id, "comment", text="shorter")
    with tenant(project.id), pytest.raises(InvalidInput, match=said):
        prepare_stage(STAGE, asked(policy, overrides, **options))


def test_answers_are_drawn_anew_to_the_same_prompts(project, policy, held, network, answered):
    network("big", seed=1)
    for number in range(6):
        answered(prompt_token_ids=[5, 6 + number])
    with tenant(project.id):
        wanted = asked(policy, teacher="big@1", answers="fresh", max_tokens=100)
        samples = prepare_stage(STAGE, wanted).samples
    assert 2 <= len(samples) <= 6  # one that does not end is left out
    for one in samples:
        ids = one.token_ids
        assert (ids[0], ids[-1], one.prompt_length, set(one.versions[2:])) == (5, 0, 2, {1})
        logp = torch.tensor(logprobs_of(held, ids))[one.prompt_length - 1 :]
        assert one.behaviour_logprobs[2:] == pytest.approx(logp.tolist(), abs=1e-4)
        assert one.row["sampling"]["temperature"] == 1.0


def test_more_than_can_be_drawn_while_somebody_waits_is_refused(project, policy, held, network, answered):
    network("big", seed=1)
    for _ in range(6):
        answered()
    with tenant(project.id), pytest.raises(InvalidInput, match=r"6 fresh answers of up to 5000 .*lower at_most"):
        prepare_stage(STAGE, asked(policy, teacher="big@1", answers="fresh", max_tokens=5000))


def test_a_second_click_does_not_draw_again_while_the_first_draws(project, policy, held, network, answered):
    network("big", seed=1)
    answered(), answered()
    other = connection.get_new_connection(connection.get_connection_params())
    try:
        with tenant(project.id), other.cursor() as cursor:
            wanted = asked(policy, teacher="big@1", answers="fresh")
            cursor.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [drawing_lock(wanted)])
            with pytest.raises(Conflict, match="editor are being drawn already"):
                prepare_stage(STAGE, wanted)
    finally:
        other.close()


def logprobs_of(folder, ids):
    with torch.no_grad():
        logits = load_policy(folder)(input_ids=torch.tensor([ids])).logits[0, :-1]
    return logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]].tolist()


# A model behind an address, asked before

ELSEWHERE = {"teacher": "big", "address": "https://big.example/v1"}
LIKELY = [[-0.5, [[7, -0.5], [9, -2.0]]], [-0.1, [[8, -0.1]]], [-0.2, [[0, -0.2]]]]


def said_elsewhere(turn, *, wants="text", **values):
    fields = {"state": "answered", "cost_usd": Decimal("0.01")} | values
    TeacherAnswer.objects.create(turn=turn, model="big", address=ELSEWHERE["address"], wants=wants, **fields)


def test_a_models_own_answer_is_imitated_and_is_a_hint(project, policy, held, answered):
    turns = [answered() for _ in range(5)]
    with tenant(project.id):
        for turn in turns[:2]:
            said_elsewhere(turn, text="w9 w5)", reasoning="please")
        said_elsewhere(turns[2], state="refused", cost_usd=None)
        said_elsewhere(turns[3], state="cut", text="w9")
        ready = STAGE.look(asked(policy, **ELSEWHERE))
        assert (ready.num_ready, ready.num_excluded) == (
            2, {"teacher: refused": 1, "teacher: cut": 1, "the teacher was not asked": 1},
        )  # fmt: skip
        both = prepare_stage(STAGE, asked(policy, **ELSEWHERE))
        alone = prepare_stage(STAGE, asked(policy, {"distill_weight": 0.0}, reasoning="train", **ELSEWHERE)).samples
    own, imitated = both.samples[0], both.samples[2]
    assert [one.kind for one in both.samples] == ["distill", "distill", "ce", "ce"]
    assert (imitated.token_ids, imitated.prompt_length) == ([5, 6, 11, 26, 0], 2)  # w9, w5), and our end token
    assert own.token_ids == [5, 6, 7, 8, 0] and own.row["hinted_prompt"][-4:] == [11, 1, 5, 6]  # "w9 w5))" before w3 w4
    assert len(both.lineage) == 2 and both.inputs == ELSEWHERE | {"wants": "text", "teacher_usd": "0.02"}
    assert [one.kind for one in alone] == ["ce", "ce"] and alone[0].token_ids[3] == 25  # please, in its thinking


def test_a_tokenizer_that_begins_each_text_with_a_token_does_so_in_prompts_alone(
    project, policy, load, answered, tmp_path
):
    source = build_tiny_policy(tmp_path / "source", WORDS, dtype=torch.float32)
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<unk> $A", special_tokens=[("<unk>", 1)])
    tokenizer.save(str(source / "tokenizer.json"))
    folder = settings.HOME.checkpoints / str(policy.id) / "v000001"
    adopt_folder(source, folder, policy=str(policy.id), version=1)
    load(folder)
    as_text = dict.fromkeys(("prompt_token_ids", "completion_token_ids", "logprobs", "weight_versions"))
    answered(**as_text), answered("reject", **as_text)
    with tenant(project.id):
        judged_text = sealing.prepare(sealing.look(policy, kind="kto"), project.id).samples
        for turn in (answered(), answered()):
            said_elsewhere(turn, text="w9")
        imitated = prepare_stage(STAGE, asked(policy, {"distill_weight": 0.0}, **ELSEWHERE)).samples
    assert [(one.token_ids, one.prompt_length) for one in judged_text] == [([1, 5, 6, 7, 8], 3)] * 2
    assert [(one.token_ids, one.prompt_length) for one in imitated] == [([5, 6, 11, 0], 2)] * 2


@pytest.mark.parametrize(("estimator", "is_refused"), [("top_k", False), ("sampled", False), ("sampled", True)])
def test_what_a_model_holds_likely_is_sealed_with_the_answer(project, policy, held, answered, estimator, is_refused):
    sampling = {"temperature": 0.5 if is_refused else 1.0, "logprobs_mode": "processed"}
    turns = [answered(sampling=sampling) for _ in range(2)]
    with tenant(project.id):
        for turn in turns:
            said_elsewhere(turn, wants="logprobs", likely=LIKELY)
        wanted = asked(policy, {"distill_estimator": estimator}, **ELSEWHERE)
        if is_refused:
            with pytest.raises(InvalidInput, match="another temperature than 1"):
                prepare_stage(STAGE, wanted)
            return
        (one, _) = prepare_stage(STAGE, wanted).samples
    assert one.row["teacher_logprobs"] == [0, 0, -0.5, -0.1, -0.2]
    assert one.row["teacher_top"] == [top for _, top in LIKELY] and one.kind == "distill"
