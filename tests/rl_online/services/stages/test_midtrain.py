"""From a folder of files to a candidate that was mid-trained on them, by the services and runners of the product."""

import shutil
import threading

import pytest
import torch

from jobs.services import claim_next
from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.commands import updater as process
from rl_online.models import DryRun, UpdateMetric, UpdateRun
from rl_online.policy.tiny import build_tiny_policy
from rl_online.services import dry_runs, updater, updates
from rl_online.services.corpora import add_corpus, build_job, find_corpus
from rl_online.services.plans import folder_of, start_policy
from rl_online.weights.manifest import read_manifest

WORDS = [f"w{number}" for number in range(30)]
SETTINGS = {"minibatch_size": 4, "warmup_steps": 1, "learning_rate": 1e-2, "general_texts": ""}


@pytest.fixture
def policy(project, settings, tmp_path):
    """`editor`, whose first checkpoint has files, with twenty documents below STROP_CORPUS_ROOT."""
    settings.CORPUS_ROOT, settings.DEVICE = str(tmp_path), "cpu"
    (tmp_path / "files").mkdir()
    for number in range(20):
        text = " ".join(f"w{(number * place) % 30}" for place in range(1, 20))
        (tmp_path / "files" / f"f{number:02}.{('py', 'md')[number % 2]}").write_text(text)
    yield start_policy(
        project.id, name="editor", folder=build_tiny_policy(tmp_path / "source", WORDS, dtype=torch.float32)
    )
    shutil.rmtree(settings.HOME.corpora, ignore_errors=True)


def claimed():
    job = claim_next(["updater"], "test")
    assert job is not None
    return job


@pytest.mark.django_db(transaction=True)  # the updater reports from a thread of its own
def test_a_folder_of_files_becomes_a_candidate_with_the_loss_of_each_language(project, policy):
    with tenant(project.id):
        add_corpus("ours", "files", policy, options={"row_tokens": 32, "heldout": 1}, actor="ada")
    build_job(claimed(), beat=lambda: None, is_stopping=lambda: False)

    asked = {"kind": "midtrain", "options": {"corpus": "ours"}, "overrides": SETTINGS, "actor": "ada"}
    with tenant(project.id):
        dry = dry_runs.start_dry_run(policy, **asked)
    dry_runs.dry_run_job(claimed(), process.try_samples, beat=lambda: None)
    with tenant(project.id):
        tried = DryRun.objects.get(pk=dry.pk)
        assert (tried.state, "loss_ce" in tried.steps[0]) == ("done", True), tried.error

        run = updates.trigger_update(policy, **asked)
    updater.update(claimed(), process.train, stopping=threading.Event(), beat=lambda: None)
    with tenant(project.id):
        found = UpdateRun.objects.get(pk=run.pk)
        assert (found.state, found.step > 2) == ("proving", True), found.error
        steps = [row.values for row in UpdateMetric.objects.filter(run=run).order_by("step") if row.values]
        manifest = read_manifest(folder_of(Checkpoint.objects.get(policy=policy, version=2)))
        assert manifest.batches == [found.batch.digest]
        assert find_corpus("ours").digest == found.inputs["corpus"]
    assert steps[-1]["loss"] < steps[0]["loss"] and steps[-1]["heldout_loss"] > 0
    assert {"loss_ce.python", "loss_ce.markdown"} <= {name for values in steps for name in values}
