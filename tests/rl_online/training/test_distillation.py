"""A teacher's distribution as a part of the loss: measured, weighed, resumed and refused."""

import functools
import math
from dataclasses import replace

import pytest
import torch

from rl_online.policy.load import load_policy
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.batch import Sample
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate, UpdateDiverged
from rl_online.training.local import LocalTrainer
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, Teaching, TrainingSample
from rl_online.training.state import state_folder
from rl_online.weights.manifest import read_manifest
from rl_online.weights.publish import adopt_folder
from tests.rl_online.training.tiny_update import CONFIG, WORDS, make_request, make_samples, run

DISTILL = replace(CONFIG, distill_weight=0.5, behaviour_pull=0.0, min_ess=0.0)
QUESTION, HINT, GOOD, BAD, END = 5, 6, 7, 8, 0


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A student and a teacher, in float32."""
    root = tmp_path_factory.mktemp("networks")
    for seed, name in enumerate(("student", "teacher")):
        build_tiny_policy(root / "sources" / name, WORDS, seed=seed, dtype=torch.float32)
        adopt_folder(root / "sources" / name, root / name, policy=name, version=1)
    return root


def taught_only(samples):
    return [replace(one, row={**one.row, "kind": "distill"}) for one in samples]


def taught(ids, places, *, reads=None, shift=0, top=None, weight=1.0, **fields):
    teaching = Teaching(weight=weight, reads=reads or ids, places=[place + shift for place in places], top=top)
    return TrainingSample(
        **{"token_ids": ids, "positions": places, "weights": {}, "reward": 0.0, "teaching": teaching, **fields}
    )


network = functools.cache(load_policy)  # of folders that nothing writes to again


def logits(folder, ids):
    with torch.no_grad():
        return network(folder)(input_ids=torch.tensor([ids])).logits[0].float()


def kl_teacher_to_student(teacher_KV, student_KV):
    teacher_KV, student_KV = teacher_KV.log_softmax(-1), student_KV.log_softmax(-1)
    return (teacher_KV.exp() * (teacher_KV - student_KV)).sum(-1)


def trainer_of(folders, config, **options):
    return LocalTrainer(folders / "student", config=config, device="cpu", seed=0, **options)


def test_the_three_terms_add_up_and_each_is_its_own_mean(folders):
    config = replace(DISTILL, base_kl=0.25, base_kl_estimator="k2", distill_weight=0.5)
    held = {Stream.RL: 1.0, Stream.REF_KL: 1.0}
    both = taught([5, 6, 7, 8], [2, 3], weights=held, advantage=1.0, behaviour=[-3.0, -3.0], base=[-3.0, -3.5])
    alone = taught([9, 4, 3], [2])
    samples = [both, alone]
    trainer = trainer_of(folders, config, teacher=folders / "teacher")
    seen = trainer.forward_backward(samples, Objective.of(samples, config))
    student, teacher = (logits(folders / name, both.token_ids)[1:3] for name in ("student", "teacher"))
    other, others = (logits(folders / name, alone.token_ids)[1:2] for name in ("student", "teacher"))
    logp = student.log_softmax(-1)[[0, 1], [7, 8]]
    gaps = torch.cat([kl_teacher_to_student(teacher, student), kl_teacher_to_student(others, other)])
    expected = {
        "rl": -((logp + 3).exp()).mean().item(),  # -A exp(l - b)
        "ref_kl": 0.25 * (0.5 * (logp - torch.tensor([-3.0, -3.5])).square()).mean().item(),
        "distill": 0.5 * gaps.mean().item(),  # over three taught tokens, one of which feeds nothing else
    }
    assert seen.losses == pytest.approx(expected, abs=1e-6)


def test_small_passes_and_packed_rows_are_the_same_loss_and_gradient(folders):
    samples = [taught([5, 6, 7, 8], [2, 3]), taught([9, 4, 3], [2], reads=[9, 2, 4, 3], shift=1), taught([3, 4], [1])]
    found = []
    for changes in ({}, {"micro_batch_tokens": 4}, {"packing": True}):
        config = replace(DISTILL, **changes)
        trainer = trainer_of(folders, config, teacher=folders / "teacher")
        loss = trainer.forward_backward(samples, Objective.of(samples, config)).losses["distill"]
        found.append((loss, trainer.optim_step(discard=True).grad_norm))
    assert found[1] == pytest.approx(found[0], abs=1e-6)
    assert found[2] == pytest.approx(found[0], abs=1e-6)


def test_who_is_taught_by_a_hint_is_compared_with_oneself_having_read_it(folders):
    one = taught([5, 6, 7, 8], [2, 3], reads=[5, 9, 9, 6, 7, 8], shift=2)
    trainer = trainer_of(folders, DISTILL)
    hinted, plain = (
        logits(folders / "student", [5, 9, 9, 6, 7, 8])[3:5],
        logits(folders / "student", one.token_ids)[1:3],
    )
    expected = kl_teacher_to_student(hinted, plain).tolist()
    assert trainer.divergences([one]) == [pytest.approx(expected, abs=1e-6)]
    assert min(expected) > 1e-4


def test_a_teacher_that_named_every_token_is_as_good_as_its_logits(folders):
    ids, places = [5, 6, 7, 8], [2, 3]
    said = logits(folders / "teacher", ids)[1:3].log_softmax(-1)
    everything = [list(enumerate(row)) for row in said.tolist()]
    by_logits = trainer_of(folders, DISTILL, teacher=folders / "teacher").divergences([taught(ids, places)])
    by_name = trainer_of(folders, DISTILL).divergences([taught(ids, places, top=everything)])
    top_two = [sorted(row, key=lambda one: -one[1])[: 2 - index] for index, row in enumerate(everything)]
    coarser = trainer_of(folders, DISTILL).divergences([taught(ids, places, top=top_two)])
    assert by_name[0] == pytest.approx(by_logits[0], abs=1e-5)
    assert all(0 < rough < fine for rough, fine in zip(coarser[0], by_logits[0], strict=True))


def update(root, samples, config, *, teacher=None, **changes):
    folders = {} if teacher is None else {"teacher": teacher}
    return make_request(root, samples, dtype=torch.float32, config=config, folders=folders, kind="distill", **changes)


def test_a_student_comes_half_the_way_to_its_teacher_on_its_own_answers(folders, tmp_path):
    config = replace(DISTILL, distill_weight=1.0, epochs=4, learning_rate=1e-2)
    seen = []
    run(update(tmp_path, taught_only(make_samples(48)), config, teacher=folders / "teacher"), on_progress=seen.append)
    first, last = seen[1].metrics, seen[-1].metrics
    assert last["kl_teacher"] < first["kl_teacher"] / 2
    assert first["loss"] == first["loss_distill"] == pytest.approx(first["kl_teacher"])
    assert "reward" not in first and "loss_rl" not in first


def test_a_step_too_far_from_who_drew_the_answers_is_skipped_with_a_teacher_alone(folders, tmp_path):
    """k3 by hand: behaviour 1 nat above what the student says now gives e^-1 - 1 + 1 = .368 at every token."""
    samples = []
    for one in taught_only(make_samples(8)):
        ids = one.token_ids
        logp = logits(folders / "student", ids).log_softmax(-1)[range(len(ids) - 1), ids[1:]]
        samples.append(replace(one, behaviour_logprobs=[0.0, *(logp + 1).tolist()]))
    near, far = (
        update(tmp_path / name, samples, replace(DISTILL, max_kl=max_kl), teacher=folders / "teacher")
        for name, max_kl in (("near", 0.4), ("far", 0.3))
    )
    seen = []
    run(near, on_progress=seen.append)
    assert seen[-1].metrics["kl"] == pytest.approx(math.exp(-1), abs=1e-5)
    assert seen[-1].metrics["is_applied"] and "ess_share" not in seen[-1].metrics
    with pytest.raises(UpdateDiverged, match="too far from its sampler"):
        run(far)


def test_reward_teacher_and_base_are_shown_apart(folders, tmp_path):
    config = replace(DISTILL, base_kl=0.1)
    request, seen = update(tmp_path, make_samples(), config, teacher=folders / "teacher"), []
    run(replace(request, base_folder=folders / "teacher"), on_progress=seen.append)
    one = seen[2].metrics
    assert one["loss"] == pytest.approx(one["loss_rl"] + one["loss_ref_kl"] + one["loss_distill"])
    assert (one["kl_teacher"], one["kl_base"]) == pytest.approx((one["loss_distill"] / 0.5, one["loss_ref_kl"] / 0.1))


def test_what_is_set_aside_is_measured_against_the_teacher_too(folders, tmp_path):
    samples = make_samples(12)
    samples[-2:] = [replace(one, row={**one.row, "is_heldout": True}) for one in samples[-2:]]
    seen = []
    run(update(tmp_path, taught_only(samples), DISTILL, teacher=folders / "teacher"), on_progress=seen.append)
    assert seen[-1].metrics["heldout_loss"] == pytest.approx(0.5 * seen[-1].metrics["heldout_kl_teacher"])


@pytest.mark.parametrize("is_sampled", [True, False])
def test_an_opinion_of_each_sampled_token_is_an_advantage(folders, tmp_path, is_sampled):
    """Sealed with the batch, or asked of a folder: the same."""
    config = replace(DISTILL, distill_estimator="sampled")
    samples = taught_only(make_samples(8))
    if is_sampled:
        samples = [
            replace(one, row={**one.row, "teacher_logprobs": [0.0, *logprobs_of(folders / "teacher", one.token_ids)]})
            for one in samples
        ]
    seen = []
    teacher = None if is_sampled else folders / "teacher"
    run(update(tmp_path, samples, config, teacher=teacher), on_progress=seen.append)
    gaps, opinions = [], []
    for one in samples:
        said, now = (logprobs_of(folders / name, one.token_ids) for name in ("teacher", "student"))
        for place in range(one.prompt_length, len(one.token_ids)):
            gaps.append(now[place - 1] - said[place - 1])
            opinions.append(-0.5 * (one.behaviour_logprobs[place] - said[place - 1]))
    assert seen[1].metrics["kl_teacher"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-5)
    assert seen[1].metrics["advantage"] == pytest.approx(sum(opinions) / len(opinions), abs=1e-5)


def logprobs_of(folder, ids):
    """Of every token but the first."""
    return logits(folder, ids)[:-1].log_softmax(-1)[range(len(ids) - 1), ids[1:]].tolist()


class Killed(BaseException):
    """Caught by nobody, as a kill is."""


@pytest.mark.parametrize("is_hinted", [True, False])
def test_killed_between_steps_it_goes_on_to_the_same_bits(folders, tmp_path, is_hinted):
    samples = make_samples()
    if is_hinted:
        samples = [
            replace(one, row={**one.row, "hinted_prompt": [9, *one.token_ids[: one.prompt_length]]}) for one in samples
        ]
    config = replace(DISTILL, snapshot_steps=1)
    straight, killed = (
        update(tmp_path / name, samples, config, teacher=None if is_hinted else folders / "teacher")
        for name in ("straight", "killed")
    )
    left = [2]

    def crash(name):
        left[0] -= name == "update.after_snapshot"
        if left[0] == 0:
            raise Killed

    with pytest.raises(Killed):
        run(killed, crash=crash)
    assert [path.name for path in state_folder(killed.out_folder).iterdir()] == ["snapshot-000002"]
    assert run(killed).tree_digest == run(straight).tree_digest != read_manifest(straight.parent_folder).tree_digest


def demonstration(prompt, answer):
    mask = [0] * len(prompt) + [1] * len(answer)
    return Sample(
        token_ids=[*prompt, *answer], prompt_length=len(prompt), mask=mask, behaviour_logprobs=None, reward=0.0,
        baseline=0.0, versions=[-1] * len(mask), row={"turn": f"{prompt}", "kind": "ce"},
    )  # fmt: skip


def test_who_read_the_hint_teaches_who_did_not(tmp_path):
    """A policy that answers badly alone and well with a hint answers well alone, having never been shown the answer."""
    config = replace(CONFIG, learning_rate=1e-2, epochs=30)
    lessons = [demonstration([HINT, QUESTION], [GOOD, END]), demonstration([QUESTION], [BAD, END])] * 4
    ready = make_request(tmp_path, lessons, dtype=torch.float32, config=config)
    run(ready)
    own = Sample(
        token_ids=[QUESTION, BAD, END], prompt_length=1, mask=[0, 1, 1], behaviour_logprobs=None, reward=0.0,
        baseline=0.0, versions=[-1, 2, 2], row={"turn": "t", "kind": "distill", "hinted_prompt": [HINT, QUESTION]},
    )  # fmt: skip
    before, hinted = (probability(ready.out_folder, prompt) for prompt in ([QUESTION], [HINT, QUESTION]))
    request = replace(
        make_request(tmp_path, [own] * 8, config=replace(config, distill_weight=1.0, epochs=5)),
        parent_folder=ready.out_folder, out_folder=tmp_path / "policy" / "v000003", version=3, parent_version=2,
    )  # fmt: skip
    run(request)
    assert (before < 0.1, hinted > 0.9) == (True, True)
    assert probability(request.out_folder, [QUESTION]) > 0.5


def probability(folder, prompt):
    return logits(folder, prompt)[-1].softmax(-1)[GOOD].item()


# Refused before any work


def refused(request, said):
    reached = []
    with pytest.raises(ContradictoryUpdate, match=said):
        run(request, crash=reached.append)
    assert reached == [] and not request.out_folder.exists()


def test_a_teacher_of_other_words_is_refused(tmp_path):
    build_tiny_policy(tmp_path / "source of another", [*reversed(WORDS)], dtype=torch.float32)
    adopt_folder(tmp_path / "source of another", tmp_path / "other", policy="other", version=1)
    refused(update(tmp_path, None, DISTILL, teacher=tmp_path / "other"), "splits text into other tokens")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "names no teacher, and no answer of the batch has a hint"),
        ({"distill_estimator": "top_k"}, "what a teacher holds likely"),
        ({"distill_estimator": "sampled"}, "a teacher's log-probabilities"),
    ],
)
def test_a_weight_without_a_teacher_is_refused(tmp_path, changes, said):
    refused(update(tmp_path, None, replace(DISTILL, **changes)), said)


def test_a_teacher_without_a_weight_is_refused(folders, tmp_path):
    refused(update(tmp_path, None, CONFIG, teacher=folders / "teacher"), "distill_weight is 0")


def test_the_top_of_a_teacher_whose_folder_is_here_is_refused(folders, tmp_path):
    config = replace(DISTILL, distill_estimator="top_k")
    refused(update(tmp_path, None, config, teacher=folders / "teacher"), "gives all its logits")


@pytest.mark.parametrize(
    "changes",
    [
        {"distill_beta": 1.5},
        {"distill_beta": 0.5, "distill_estimator": "top_k"},
        {"distill_weight": 1.0, "distill_estimator": "sampled", "policy_loss": "gspo", "correction": "none"},
        {"distill_estimator": "guess"},
    ],
)
def test_settings_of_a_teacher_that_mean_nothing_together_are_refused(changes):
    with pytest.raises(ValueError, match="distill"):
        UpdateConfig(**changes)


def test_an_answer_for_a_teacher_alone_is_left_out_and_counted_where_none_says_anything(tmp_path):
    hinted, plain, unknown = taught_only(make_samples(3))
    hinted = replace(hinted, row={**hinted.row, "hinted_prompt": [9, *hinted.token_ids[: hinted.prompt_length]]})
    unknown = replace(unknown, versions=[-1] * len(unknown.token_ids))
    metrics = run(update(tmp_path, [hinted, plain, unknown], DISTILL)).metrics
    assert (metrics["dropped_untaught"], metrics["dropped_unknown_version"]) == (1, 1)
    assert metrics["num_taught"] == 1 and math.isfinite(metrics["kl_teacher"])


def test_a_group_of_equal_rewards_is_still_taught(folders, tmp_path):
    config = replace(DISTILL, advantage="rloo")
    samples = [replace(one, reward=0.75, row={**one.row, "group": "g"}) for one in make_samples(4)]
    metrics = run(update(tmp_path, samples, config, teacher=folders / "teacher")).metrics
    assert (metrics["num_samples_rl"], metrics["dropped_dead_group"], metrics["num_taught"]) == (0, 4, 4)
