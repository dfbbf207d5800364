import os
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from rl_online.algorithms.reward_model import bradley_terry
from rl_online.policy.load import load_tokenizer
from rl_online.policy.tiny import build_tiny_policy
from rl_online.training.errors import ContradictoryUpdate, UpdateCancelled, UpdateFailed
from rl_online.training.reward_model import load_scorer, run_reward_model
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.scalar import ScalarTrainer, after_the_last
from rl_online.training.state import state_folder
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import verify_folder
from tests.rl_online.training.tiny_pairs import GOOD, PAIR_CONFIG, make_pairs
from tests.rl_online.training.tiny_update import make_request

SHORT = replace(PAIR_CONFIG, epochs=1, snapshot_steps=1, heldout_samples=4)
# Where it is killed, and how many of its five steps a snapshot had by then.
POINTS = {
    "update.after_backward#3": 2,
    "update.after_optimizer#2": 1,
    "update.mid_snapshot#2": 1,
    "update.after_snapshot#2": 2,
    "update.mid_save": 5,
    "update.after_rename": 5,
}


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def request_of(root, *, samples=None, **changes):
    fields = {"kind": "reward_model", "config": SHORT, "version": 0, "parent_version": 1}
    return make_request(root, samples or make_pairs(), out_folder=root / "rewards" / "one", **(fields | changes))


def run(request, **hooks):
    quiet = {"on_progress": lambda progress: None, "is_cancelled": lambda: False, "crash": lambda name: None}
    return run_reward_model(request, **(quiet | hooks))


def answer(*ids, prompt=(2, 3)):
    return TrainingSample(token_ids=[*prompt, *ids], positions=[len(prompt)], weights={Stream.RL: 1.0}, reward=0.0)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    torch.set_num_threads(1)
    samples = make_pairs(192, people=48)
    request = request_of(tmp_path_factory.mktemp("learnt"), samples=samples, config=replace(PAIR_CONFIG, epochs=6))
    return request, run(request)


def test_it_learns_the_planted_taste(learnt):
    _, result = learnt
    accuracy = result.report["accuracy"]
    assert accuracy["share"] >= 0.9 and accuracy["n"] == result.report["num_heldout"] == 40
    assert accuracy["low"] < accuracy["share"] <= accuracy["high"]
    assert result.report["num_trained"] == 152 and result.report["part"] == "all"


def test_scores_are_normalised_by_those_of_the_answers_it_learnt_from(learnt):
    request, result = learnt
    score = load_scorer(result.folder, request.parent_folder, PAIR_CONFIG, device="cpu")
    good, bad = (fmean(score([answer(one, said, 0) for one in (5, 9, 14, 20)])) for said in (GOOD, 6))
    assert good > 0 > bad and good - bad == pytest.approx(2, abs=1)  # half of the answers are good: two std apart


def test_a_plain_loader_takes_the_folder_and_scores_alike(learnt):
    request, result = learnt
    plain = AutoModelForSequenceClassification.from_pretrained(result.folder)
    score = load_scorer(result.folder, request.parent_folder, PAIR_CONFIG, device="cpu")
    with torch.no_grad():
        said = float(plain(input_ids=torch.tensor([[2, 3, 5, GOOD, 0]])).logits)
    assert (said - result.mean) / result.std == pytest.approx(score([answer(5, GOOD, 0)])[0], abs=0.05)  # bfloat16
    assert load_tokenizer(result.folder)("w5").input_ids == [7]


def test_a_flipped_byte_is_refused(learnt, tmp_path):
    request, _ = learnt
    copy = request_of(tmp_path)
    result = run(copy)
    weights = result.folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        load_scorer(result.folder, request.parent_folder, PAIR_CONFIG, device="cpu")


def test_the_first_step_follows_bradley_terry_by_hand():
    """Scores 1 and 0, margin .5: -log sigma(.5) = .474077, its gradient -+sigma(-.5) = -+.377541."""
    chosen_P, rejected_P = (torch.tensor([value], requires_grad=True) for value in (1.0, 0.0))
    loss = bradley_terry(chosen_P, rejected_P, torch.ones(1), denominator=1, margin_P=0.5)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.474077, abs=1e-6)
    assert (float(chosen_P.grad), float(rejected_P.grad)) == (
        pytest.approx(-0.377541, abs=1e-6), pytest.approx(0.377541, abs=1e-6)
    )  # fmt: skip


def test_a_head_of_zeros_begins_at_even_odds(tmp_path):
    seen = []
    run(request_of(tmp_path), on_progress=seen.append)
    assert seen[1].metrics["loss"] == pytest.approx(0.693147, abs=1e-5)
    assert [one.step for one in seen] == [0, 1, 2, 3, 4, 5] and seen[-1].num_steps == 5
    assert {"accuracy", "score_gap", "heldout_loss", "heldout_accuracy", "grad_norm"} <= set(seen[-1].metrics)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    torch.set_num_threads(1)
    return run(request_of(tmp_path_factory.mktemp("straight")))


def kill_at(point):
    name, _, times = point.partition("#")
    left = int(times or 1)

    def crash(passed):
        nonlocal left
        left -= passed == name
        if left == 0:
            left = -1
            raise Killed

    return crash


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_it_goes_on_and_ends_with_the_same_bits(tmp_path, straight, point):
    request = request_of(tmp_path)
    with pytest.raises(Killed):
        run(request, crash=kill_at(point))
    passed = []
    again = run(request, crash=passed.append)
    assert (again.tree_digest, again.report, again.std) == (straight.tree_digest, straight.report, straight.std)
    assert passed.count("update.after_optimizer") == 5 - POINTS[point]
    assert not state_folder(request.out_folder).exists()


def test_cancelled_it_keeps_its_last_snapshot_and_no_folder(tmp_path, straight):
    request, seen = request_of(tmp_path), []
    with pytest.raises(UpdateCancelled, match="before step 3 of 5"):
        run(request, on_progress=seen.append, is_cancelled=lambda: seen[-1].step == 2)
    assert not request.out_folder.exists()
    assert [path.name for path in state_folder(request.out_folder).iterdir()] == ["snapshot-000002"]
    assert run(request).tree_digest == straight.tree_digest


def test_a_folder_of_another_request_is_not_taken_for_its_own(tmp_path):
    request = request_of(tmp_path)
    run(request)
    with pytest.raises(CorruptCheckpoint, match="another update"):
        run(replace(request, inputs={"part": "gold"}))
    assert run(request).train_s == 0 and verify_folder(request.out_folder)


def test_too_few_pairs_leave_nothing(tmp_path):
    request = request_of(tmp_path, samples=make_pairs(6))
    with pytest.raises(ContradictoryUpdate, match="6 pairs"):
        run(request)
    assert os.listdir(tmp_path) and not request.out_folder.parent.exists()


def test_scores_that_are_all_equal_are_no_reward_model(tmp_path):
    samples = make_pairs()
    same = [replace(one, token_ids=[2, 3], mask=[0, 1], prompt_length=1, versions=[-1, -1]) for one in samples]
    with pytest.raises(UpdateFailed, match="same score"):
        run(request_of(tmp_path, samples=same))


def test_another_tokenizer_is_refused(learnt, tmp_path):
    _, result = learnt
    other = make_request(tmp_path).parent_folder
    (other / "tokenizer.json").write_text("{}")
    from rl_online.weights.manifest import write_manifest

    write_manifest(other, policy="p", version=1)
    with pytest.raises(ContradictoryUpdate, match="another tokenizer"):
        load_scorer(result.folder, other, PAIR_CONFIG, device="cpu")


@pytest.mark.parametrize(
    ("changes", "said"), [({"lora_rank": 4}, "lora_rank is 4, .* set it to 0"), ({"packing": True}, "switch it off")]
)
def test_what_only_a_policy_can_be_trained_with_is_refused(tmp_path, changes, said):
    with pytest.raises(ContradictoryUpdate, match=said):
        run(request_of(tmp_path, config=replace(SHORT, **changes)))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="needs torch 2.9")
def test_muon_takes_the_matrices_of_the_trunk_and_neither_embeddings_nor_head(tmp_path):
    folder = build_tiny_policy(tmp_path, ["w1"])
    trainer = ScalarTrainer(folder, config=replace(SHORT, optimizer="muon"), device="cpu", reads=after_the_last)
    muon, adamw = ([id(one) for one in mover.param_groups[0]["params"]] for mover in trainer.optimizer.optimizers)
    places = {id(master): name for name, master in trainer.optimizer.masters.items()}
    assert {name.split(".")[-2] for name in map(places.__getitem__, muon)} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
    assert {"score.weight", "model.embed_tokens.weight"} <= set(map(places.__getitem__, adamw))
