"""Stages through the services that make them in the product: a real engine encodes, the updater's own runner trains."""

import asyncio
import threading

import pytest
import torch
from django.conf import settings

from jobs.services import claim_next
from registry.models import Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online.commands import updater as process
from rl_online.models import DryRun, UpdateMetric, UpdateRun
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.batch import read_batch
from rl_online.services import dry_runs, updater, updates
from rl_online.services.plans import folder_of, start_policy
from rl_online.serving.client import EngineClient
from rl_online.weights.manifest import read_manifest
from tests.console.engines import running_engine

WORDS = ["add", "two", "a", "b", "+", "-", "return", "1"]
SETTINGS = {"learning_rate": 1e-2, "minibatch_size": 2}


@pytest.fixture
def policy(project, tmp_path):
    """`editor`, whose first checkpoint has files."""
    source = build_tiny_policy(tmp_path / "source", WORDS, dtype=torch.float32)
    return start_policy(project.id, name="editor", folder=source)


@pytest.fixture
def engine(project, policy):
    """An engine that holds what serves."""
    with tenant(project.id):
        serving = Deployment.objects.get(policy=policy).checkpoint
        folder = folder_of(serving)
    with running_engine("test") as socket:

        async def load() -> None:
            async with EngineClient(socket) as client:
                await client.load_full(f"{policy.id}@1", folder)

        asyncio.run(load())
        yield


def work(kind: str, handle) -> None:
    job = claim_next(["updater"], "test")
    assert job is not None and job.kind == kind
    handle(job)


def train_next() -> None:
    def handle(job) -> None:
        updater.update(job, process.train, stopping=threading.Event(), beat=lambda: None)

    work("rl_online.update", handle)


def try_next() -> None:
    work("rl_online.dry_run", lambda job: dry_runs.dry_run_job(job, process.try_samples, beat=lambda: None))


def metrics_of(run: UpdateRun) -> list[dict]:
    return list(UpdateMetric.objects.filter(run=run).order_by("step").values_list("values", flat=True))


@pytest.mark.django_db(transaction=True)
def test_edits_become_demonstrations_and_pairs_and_each_a_candidate(project, policy, engine, judged, say_signal):
    answers = {"prompt": "add two", "completion": "return a - b", "prompt_token_ids": [2, 3]}
    sampled = {"completion_token_ids": [8, 4, 7, 5, 0], "logprobs": [-2.0] * 5, "weight_versions": [(0, 5, 1)]}
    for number in range(4):
        judged("accept", id=f"turn-{number}", **answers, **sampled)
        say_signal(f"turn-{number}", "edit", text="return a + b")

    with tenant(project.id):
        first = dry_runs.start_dry_run(policy, kind="sft", actor="ada", overrides=SETTINGS)
    try_next()
    with tenant(project.id):
        tried = DryRun.objects.get(id=first.id)
        assert (tried.state, tried.num_samples, len(tried.steps)) == ("done", 4, 2), tried.error
        run = updates.trigger_update(policy, kind="sft", actor="ada", options={"at_least": 4}, overrides=SETTINGS)
        samples = read_batch(settings.HOME.batches / run.batch.digest).samples
    # the end token the answer had, and only the changed sign is learnt
    assert samples[0].token_ids == [2, 3, 8, 4, 6, 5, 0]
    assert samples[0].mask == [0, 0, 0, 0, 1, 0, 0]
    train_next()
    with tenant(project.id):
        run.refresh_from_db()
        assert (run.state, run.step, run.timings["train"] > 0) == ("proving", 2, True), run.error
        assert metrics_of(run)[1]["loss"] < metrics_of(run)[0]["loss"]
        manifest = read_manifest(folder_of(Checkpoint.objects.get(update=run)))
        assert manifest.batches == [run.batch.digest]
        UpdateRun.objects.update(state="held")

        pairs = updates.trigger_update(policy, kind="pairs", actor="ada", options={"at_least": 4}, overrides=SETTINGS)
        better, worse = read_batch(settings.HOME.batches / pairs.batch.digest).samples[:2]
    assert (better.token_ids, worse.token_ids) == ([2, 3, 8, 4, 6, 5, 0], [2, 3, 8, 4, 7, 5, 0])
    train_next()
    with tenant(project.id):
        pairs.refresh_from_db()
        assert (pairs.state, pairs.kind) == ("proving", "pairs"), pairs.error
        assert metrics_of(pairs)[0]["loss"] == pytest.approx(0.693147, abs=1e-4)  # log 2: nothing is preferred yet
        assert metrics_of(pairs)[1]["loss"] < 0.69
