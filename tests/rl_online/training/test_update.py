import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rl_online.policy.load import load_policy
from rl_online.training.state import state_folder
from rl_online.training.update import UpdateCancelled, UpdateDiverged, UpdateFailed
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import read_manifest, verify_folder
from rl_online.weights.publish import parse_delta_manifest, rebuild_folder
from tests.rl_online.training.tiny_update import (
    CONFIG,
    following,
    make_request,
    make_sample,
    make_samples,
    run,
    state_bytes,
)

# A name, and how many times it is passed before the kill: each of the three steps is followed by a snapshot.
POINTS = [
    "update.before_train",
    "update.after_backward",
    "update.after_backward#2",
    "update.after_optimizer#3",
    "update.before_snapshot",
    "update.mid_snapshot#2",
    "update.after_snapshot#2",
    "update.mid_save",
    "update.before_rename",
    "update.after_rename",
    "update.mid_publish",
    "update.after_publish",
]
NUM_DONE = {"update.after_backward#2": 1, "update.after_optimizer#3": 2, "update.mid_snapshot#2": 1,
            "update.after_snapshot#2": 2, "update.mid_save": 3, "update.before_rename": 3}  # fmt: skip
SNAPSHOTS = replace(CONFIG, snapshot_steps=1)
IN_CHILDREN = """
import os, sys
sys.path.insert(0, os.getcwd())
import torch
torch.set_num_threads(1)
from pathlib import Path
from tests.rl_online.training import accidents

root = Path(sys.argv[1])
for name in sys.argv[2:]:
    # torch is loaded once and forked, which is safe here: nothing has been computed yet, so there are no threads
    child = os.fork()
    if child == 0:
        accidents.happen(name, root / name)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def test_an_update_makes_a_checkpoint_that_loads_and_names_its_parent_and_batch(tmp_path):
    request = make_request(tmp_path)
    result = run(request)
    manifest = verify_folder(request.out_folder)
    assert (manifest.version, manifest.parent, manifest.batches) == (2, 1, [request.batch_folder.name])
    assert (result.optimizer_step, manifest.optimizer_step, result.tree_digest) == (3, 3, manifest.tree_digest)
    assert result.tree_digest != read_manifest(request.parent_folder).tree_digest
    assert load_policy(request.out_folder).dtype is torch.bfloat16


def test_the_delta_turns_the_parent_into_the_checkpoint(tmp_path):
    request = make_request(tmp_path)
    delta = run(request).delta
    manifest = parse_delta_manifest(delta.manifest_path.read_bytes())
    rebuilt = rebuild_folder(request.parent_folder, delta.path.read_bytes(), manifest, tmp_path / "received")
    assert rebuilt == read_manifest(request.out_folder)


def test_equal_requests_give_equal_bits_and_another_seed_does_not(tmp_path):
    requests = [make_request(tmp_path / name, seed=seed) for name, seed in (("a", 7), ("b", 7), ("c", 8))]
    one, two, other = (run(request).tree_digest for request in requests)
    assert one == two != other
    assert state_bytes(requests[0]) == state_bytes(requests[1])


@pytest.fixture(scope="module")
def happened(tmp_path_factory):
    """A folder per accident, in which an update met with it; and the same update undisturbed."""
    root = tmp_path_factory.mktemp("killed")
    run(make_request(root / "straight", config=SNAPSHOTS))
    command = [sys.executable, "-c", IN_CHILDREN, str(root), *POINTS, "full_disk", "little_memory"]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == ["137"] * len(POINTS) + ["0", "0"]
    return root


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_the_update_goes_on_and_ends_with_the_same_bits(happened, point):
    assert (happened / point / "reached").read_text() == point
    straight, again = (make_request(happened / name, config=SNAPSHOTS) for name in ("straight", point))
    passed, seen = [], []
    assert run(again, crash=passed.append, on_progress=seen.append).tree_digest == tree_digest_of(straight)
    assert state_bytes(again) == state_bytes(straight)
    assert list((happened / point).rglob("*.tmp")) == []
    if point not in ("update.after_rename", "update.mid_publish", "update.after_publish"):
        assert passed.count("update.after_optimizer") == 3 - NUM_DONE.get(point, 0)
        assert [one.step for one in seen] == [0, 1, 2, 3]  # what a page missed is told again
        assert [sorted(one.metrics) for one in seen[1:3]] == [sorted(seen[3].metrics)] * 2


def test_snapshots_change_no_bit(happened, tmp_path):
    assert run(make_request(tmp_path)).tree_digest == tree_digest_of(make_request(happened / "straight"))


def test_16_each_sample_is_trained_on_exactly_once_across_a_kill(happened):
    request = make_request(happened / "update.after_optimizer#3", config=SNAPSHOTS)
    run(request)
    order = json.loads((state_folder(request.out_folder) / "order.json").read_text())
    assert sorted(place for step in order for place in step) == list(range(24))


def test_a_full_disk_costs_the_new_snapshot_and_nothing_that_was_there(happened):
    request = make_request(happened / "full_disk", config=SNAPSHOTS)
    told = (happened / "full_disk" / "reached").read_text()
    assert "File too large" in told
    assert [path.name for path in state_folder(request.out_folder).iterdir()] == ["snapshot-000002"]
    assert not request.out_folder.exists() and verify_folder(request.parent_folder)
    passed = []
    assert run(request, crash=passed.append).tree_digest == tree_digest_of(make_request(happened / "straight"))
    assert passed.count("update.after_optimizer") == 1


def test_passes_that_do_not_fit_are_halved_and_the_gradient_stays_the_same(happened):
    little, plenty = json.loads((happened / "little_memory" / "reached").read_text())
    assert plenty["max_tokens"] == 8192 and little["max_tokens"] <= 4096
    assert little["loss"] == pytest.approx(plenty["loss"], abs=1e-6)
    assert little["grad_norm"] == pytest.approx(plenty["grad_norm"], rel=1e-5)


def test_a_damaged_snapshot_is_passed_over(tmp_path):
    straight = run(make_request(tmp_path / "straight", config=SNAPSHOTS))
    request = make_request(tmp_path / "damaged", config=SNAPSHOTS)
    left_after(request, "update.after_snapshot", times=2)
    (snapshot,) = state_folder(request.out_folder).iterdir()
    weights = bytearray((snapshot / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (snapshot / "weights.safetensors").write_bytes(weights)
    passed = []
    assert run(request, crash=passed.append).tree_digest == straight.tree_digest
    assert passed.count("update.after_optimizer") == 3


def test_a_snapshot_of_another_seed_is_not_gone_on_from(tmp_path):
    request = make_request(tmp_path, config=SNAPSHOTS)
    left_after(request, "update.after_snapshot", times=2)
    passed = []
    run(replace(request, seed=8), crash=passed.append)
    assert passed.count("update.after_optimizer") == 3


def test_an_updater_that_was_taken_over_leaves_the_snapshot_of_the_one_further_on(tmp_path):
    request = make_request(tmp_path, config=SNAPSHOTS)
    taken_over = []

    def be_overtaken(name):
        if name == "update.after_optimizer" and not taken_over:
            taken_over.append(name)
            left_after(request, "update.after_snapshot", times=3)

    done = iter([False, True])  # the slow one hears of it before its second step
    with pytest.raises(UpdateCancelled):
        run(request, crash=be_overtaken, is_cancelled=lambda: next(done))
    assert [path.name for path in state_folder(request.out_folder).iterdir()] == ["snapshot-000003"]


def left_after(request, point, *, times):
    """An update that ends in the middle, as one that was killed there would."""
    left = [times]

    def stop(name):
        left[0] -= name == point
        if left[0] == 0:
            raise Killed(name)

    with pytest.raises(Killed):
        run(request, crash=stop)


class Killed(BaseException):
    """Caught by nobody, as a kill is."""


def tree_digest_of(request):
    return read_manifest(request.out_folder).tree_digest


def test_a_finished_update_is_found_not_trained_again(tmp_path):
    request = make_request(tmp_path)
    first = run(request)
    reached = []
    again = run(request, crash=reached.append)
    assert again == replace(first, train_s=0.0, publish_s=again.publish_s)
    assert "update.before_train" not in reached


def test_another_requests_folder_is_not_taken_for_ours(tmp_path):
    request = make_request(tmp_path)
    run(request)
    with pytest.raises(CorruptCheckpoint, match="seed differs"):
        run(replace(request, seed=8))


def test_the_optimizer_follows_the_parent(tmp_path):
    first = make_request(tmp_path)
    run(first)
    second = following(first, make_samples(seed=1))
    assert run(second).optimizer_step == 6


def test_without_the_parents_state_the_second_update_differs(tmp_path):
    digests = []
    for name, keeps_state in (("a", True), ("b", False)):
        first = make_request(tmp_path / name)
        run(first)
        state = first.out_folder.parent / "train" / first.out_folder.name
        if not keeps_state:
            state.rename(tmp_path / "gone")
        digests.append(run(following(first, make_samples(seed=1))).tree_digest)
    assert digests[0] != digests[1]


def test_a_state_that_belongs_to_other_weights_is_refused(tmp_path):
    first = make_request(tmp_path)
    run(first)
    state = first.out_folder.parent / "train" / first.out_folder.name
    second = following(first, make_samples(seed=1))
    run(second)
    other = state.with_name(second.out_folder.name)
    for path in state.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    with pytest.raises(CorruptCheckpoint, match="other weights"):
        run(following(second, make_samples(seed=2)))


def test_a_damaged_parent_is_not_trained_from(tmp_path):
    request = make_request(tmp_path)
    (request.parent_folder / "config.json").write_text("{}")
    with pytest.raises(CorruptCheckpoint):
        run(request)
    assert not request.out_folder.exists()


def test_cancelling_leaves_nothing_behind(tmp_path):
    request = make_request(tmp_path)
    with pytest.raises(UpdateCancelled):
        run(request, is_cancelled=lambda: True)
    assert sorted(path.name for path in request.out_folder.parent.iterdir()) == ["v000001"]


def test_cancelling_keeps_the_last_snapshot_to_go_on_from(tmp_path):
    straight = run(make_request(tmp_path / "straight", config=SNAPSHOTS))
    request = make_request(tmp_path / "cancelled", config=replace(CONFIG, snapshot_steps=3))
    asked = iter([False, False, True])
    with pytest.raises(UpdateCancelled, match="before step 3 of 3"):
        run(request, is_cancelled=lambda: next(asked))
    assert [path.name for path in state_folder(request.out_folder).iterdir()] == ["snapshot-000002"]
    assert run(request).tree_digest == straight.tree_digest


def test_progress_tells_every_step_with_its_numbers(tmp_path):
    seen = []
    run(make_request(tmp_path), on_progress=seen.append)
    assert [(one.step, one.num_steps) for one in seen] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert {"loss", "loss_rl", "reward", "kl", "ratio_mean", "ratio_max", "clipped_share", "ess_share"} <= set(
        seen[1].metrics
    )
    assert seen[-1].seconds_left == 0 and seen[-1].tokens_per_s > 0


def test_three_steps_without_a_finite_gradient_fail_the_update(tmp_path):
    poisoned = make_samples(reward=3e38, baseline=-3e38)
    with pytest.raises(UpdateDiverged, match="not finite in 3 steps in a row, up to step 3"):
        run(make_request(tmp_path, poisoned))


def test_one_step_without_a_finite_gradient_is_skipped_and_counted(tmp_path):
    samples = [*make_samples(23), make_sample(random.Random(5), reward=3e38, baseline=-3e38)]
    result = run(make_request(tmp_path, samples))
    assert (result.metrics["skipped_not_finite"], result.optimizer_step) == (1, 2)


def test_three_steps_far_from_their_sampler_roll_back_to_the_parent(tmp_path):
    strangers = make_samples(32)
    strangers[:] = [replace(one, behaviour_logprobs=[9 * p for p in one.behaviour_logprobs]) for one in strangers]
    request = make_request(tmp_path, strangers, config=replace(SNAPSHOTS, min_ess=0.0))
    seen = []
    with pytest.raises(UpdateDiverged, match="too far from its sampler"):
        run(request, on_progress=seen.append)
    assert [one.metrics["is_high_kl"] for one in seen[1:]] == [1, 1, 1]
    assert sorted(path.name for path in request.out_folder.parent.rglob("*") if path.is_dir()) == ["train", "v000001"]


def test_what_is_not_finite_is_left_out_of_the_numbers_of_a_step(tmp_path):
    samples = [*make_samples(23), make_sample(random.Random(5), reward=3e38, baseline=-3e38)]
    seen = []
    run(make_request(tmp_path, samples), on_progress=seen.append)
    (skipped,) = [one.metrics for one in seen[1:] if one.metrics["is_finite"] == 0]
    assert "grad_norm" not in skipped and "kl" in skipped


def test_an_update_whose_minibatches_are_all_far_from_their_sampler_makes_no_checkpoint(tmp_path):
    wild = [
        replace(one, behaviour_logprobs=[p * (1 + i / 4) for i, p in enumerate(one.behaviour_logprobs)])
        for one in make_samples()
    ]
    request, seen = make_request(tmp_path, wild, config=SNAPSHOTS), []
    with pytest.raises(UpdateFailed, match="no step was taken: 3 of 3 had too few effective samples") as error:
        run(request, on_progress=seen.append)
    assert not isinstance(error.value, UpdateDiverged)  # so its turns are free again
    assert [one.metrics["is_low_ess"] for one in seen[1:]] == [1, 1, 1]
    assert sorted(path.name for path in request.out_folder.parent.rglob("*") if path.is_dir()) == ["train", "v000001"]


def test_a_short_update_without_a_finite_gradient_diverged_too(tmp_path):
    with pytest.raises(UpdateDiverged, match="not finite in any step of 1"):
        run(make_request(tmp_path, make_samples(4, reward=3e38, baseline=-3e38)))


def test_a_batch_with_nothing_to_learn_from_fails_with_the_reasons(tmp_path):
    silent = make_samples(behaviour_logprobs=None, reward=0.0, baseline=0.0)
    with pytest.raises(UpdateFailed, match="no_verdict"):
        run(make_request(tmp_path, silent))


def test_kto_needs_no_log_probabilities_and_moves_good_up_and_bad_down(tmp_path):
    samples = make_samples(behaviour_logprobs=None)
    samples = [replace(one, row={"turn": "t", "kind": "kto"}, reward=one.reward) for one in samples]
    request = make_request(tmp_path, samples, config=replace(CONFIG, epochs=8))
    result = run(request)
    assert result.metrics["num_samples_pref"] == 24
    assert gain(request, samples, is_good=True) > 0 > gain(request, samples, is_good=False)


def test_reinforce_moves_good_up_and_bad_down(tmp_path):
    samples = make_samples(48)
    request = make_request(tmp_path, samples, config=replace(CONFIG, epochs=4))
    run(request)
    assert gain(request, samples, is_good=True) > 0 > gain(request, samples, is_good=False)


def gain(request, samples, *, is_good):
    """Mean change of a completion's log-probability from parent to child."""
    chosen = [one for one in samples if (one.reward > 0) == is_good]
    before, after = (total_logprob(folder, chosen) for folder in (request.parent_folder, request.out_folder))
    return (after - before) / len(chosen)


def total_logprob(folder, samples):
    model = load_policy(folder, dtype=torch.float32)
    total = 0.0
    for one in samples:
        with torch.no_grad():
            logp = model(input_ids=torch.tensor([one.token_ids])).logits[0, :-1].log_softmax(-1)
        total += sum(logp[place - 1, one.token_ids[place]].item() for place, m in enumerate(one.mask) if m)
    return total


@pytest.mark.parametrize("estimator", ["k2", "ratio_k3"])
def test_the_kl_to_the_base_is_a_term_of_its_own_and_zero_at_the_start(tmp_path, estimator):
    config = replace(CONFIG, base_kl=0.5, base_kl_estimator=estimator, minibatch_size=24)
    request = make_request(tmp_path, config=config)
    seen = []
    run(replace(request, base_folder=request.parent_folder), on_progress=seen.append)
    assert seen[1].metrics["loss_ref_kl"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_dtypes_train_and_keep_theirs(tmp_path, dtype):
    request = make_request(tmp_path, dtype=dtype)
    second = following(request, make_samples(seed=1))
    run(request)
    assert run(second).optimizer_step == 6
    assert load_policy(second.out_folder).dtype is dtype


def test_metrics_count_what_was_dropped_and_why(tmp_path):
    samples = make_samples(22)
    samples.append(replace(samples[0], mask=[0] * len(samples[0].token_ids)))
    samples.append(replace(samples[1], versions=[9] * len(samples[1].token_ids)))
    metrics = run(make_request(tmp_path, samples)).metrics
    assert (metrics["num_samples_rl"], metrics["dropped_nothing_trained"], metrics["dropped_off_lineage"]) == (22, 1, 1)


def test_a_sample_that_is_only_measured_moves_no_weight(tmp_path):
    taught, aside = make_samples(12), make_samples(2, seed=9)
    marked = [replace(sample, row={**sample.row, "is_heldout": True}) for sample in aside]
    alone = run(make_request(tmp_path / "alone", taught))
    measured = run(make_request(tmp_path / "measured", [*taught, *marked]))
    assert measured.tree_digest == alone.tree_digest
    assert (measured.metrics["num_heldout"], alone.metrics["num_heldout"]) == (2, 0)


def test_a_batch_whose_samples_are_all_only_measured_fails(tmp_path):
    marked = [replace(sample, row={**sample.row, "is_heldout": True}) for sample in make_samples(4)]
    with pytest.raises(UpdateFailed, match="no sample of the batch"):
        run(make_request(tmp_path, marked))


def test_the_metrics_of_a_finished_update_are_plain_json(tmp_path):
    request = make_request(tmp_path)
    result = run(request)
    stored = Path(request.out_folder.parent / "train" / "v000002" / "metrics.json")
    assert json.loads(stored.read_text()) == result.metrics
