"""A kind that makes no checkpoint: its run ends done, what it made is registered, its turns stay spent."""

from dataclasses import replace
from functools import partial

import pytest

from jobs.models import Job
from registry.models import AuditEvent, Checkpoint
from registry.tenancy import tenant
from rl_online.models import UpdateKind
from rl_online.services import runs, updates
from rl_online.services.pair_samples import gather_pairs, look_at_pairs
from rl_online.services.stages.table import STAGES

pytestmark = pytest.mark.django_db
KIND = str(UpdateKind.REWARD_MODEL)


@pytest.fixture
def made(monkeypatch):
    """What was registered by a stage that makes scores of pairs."""
    found: list[tuple] = []
    stage = replace(
        STAGES["pairs"],
        kind=KIND,
        look=partial(look_at_pairs, KIND),
        gather=partial(gather_pairs, KIND),
        register=lambda run, result: found.append((run.version, dict(result))),
    )
    monkeypatch.setitem(STAGES, KIND, stage)
    return found


@pytest.fixture
def start(project, policy, judged, say_signal):
    judged(None, id="a", completion="x)", completion_token_ids=[7, 0], logprobs=[-0.1, -0.2], weight_versions=[])
    judged(None, id="b", completion="y)")
    say_signal("a", "preference", text="b")

    def make(kind: str):
        with tenant(project.id):
            return updates.trigger_update(policy, kind=kind, actor="ada", options={"at_least": 1})

    return make


def test_it_is_done_and_registered_and_nothing_is_to_be_proven(project, policy, made, start):
    run = start(KIND)
    with tenant(project.id):
        runs.begin(run.id)
        runs.complete(run.id, result={"accuracy": 0.75}, timings={"train": 2.0})
        run.refresh_from_db()
        assert (run.state, run.checkpoint, run.timings["train"]) == ("done", None, 2.0)
        assert str(run) == "reward model of editor, run 2"
        assert AuditEvent.objects.get(verb="end", object_id=str(run.id)).after == {"state": "done", "kind": KIND}
        assert Checkpoint.objects.count() == 1 and not Job.objects.filter(kind=runs.PROVE_JOB).exists()
        # what it learnt from stays spent for its kind, and is free for another
        assert updates.preview_update(policy, kind=KIND).num_ready == 0
        assert updates.preview_update(policy, kind="pairs").num_ready == 1
    assert made == [(2, {"accuracy": 0.75})]


def test_it_seals_another_batch_than_another_kind_does_from_the_same_pairs(project, made, start):
    first = start(KIND)
    with tenant(project.id):
        runs.begin(first.id)
        runs.complete(first.id, result={}, timings={"train": 1.0})
    assert start("pairs").batch.digest != first.batch.digest


def test_it_goes_on_when_another_checkpoint_comes_to_serve(project, policy, judged, made, start, promoted):
    run = start(KIND)
    with tenant(project.id):
        type(run).objects.filter(id=run.id).update(state="done")
    judged("accept"), judged("reject")
    promoted()
    with tenant(project.id):
        type(run).objects.filter(id=run.id).update(state="queued")
        assert runs.superseded(run) and runs.begin(run.id) is not None
