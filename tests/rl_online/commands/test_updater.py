import pytest

from rl_online.commands.updater import train_checkpoint
from rl_online.weights.manifest import read_manifest
from tests.rl_online.training.mixed_update import assert_close, make_mixed, masters_of, run_mixed


def test_under_torchrun_an_update_tells_its_steps_and_ends_with_the_weights_of_one_process(settings, tmp_path):
    settings.TRAINER, settings.TRAINER_RANKS = "torchrun", 1
    request, seen = make_mixed(tmp_path / "torchrun"), []
    trained = train_checkpoint(request, on_progress=seen.append, is_cancelled=lambda: False, crash=print)
    assert [one.step for one in seen] == [0, 1, 2, 3]
    assert trained.tree_digest == read_manifest(request.out_folder).tree_digest
    one = make_mixed(tmp_path / "one")
    assert [step.metrics["loss"] for step in seen[1:]] == pytest.approx(run_mixed(one), abs=1e-6)
    assert_close(masters_of(request), masters_of(one))
