"""A policy with a serving checkpoint, turns that users have judged, and updates that were trained: rows, made by the
services that make them in the product."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from feedback.models import Turn
from feedback.services.label import label_turns
from feedback.services.record import record_items, record_turns
from feedback.wire import SignalItem, TurnItem
from registry.models import Checkpoint, Deployment, Policy
from registry.services import create_policy, register_checkpoint
from registry.tenancy import tenant
from rl_online.models import LearningPlan, UpdateRun
from rl_online.services import plans, promotion, runs, sealing

START = datetime.now(UTC) - timedelta(hours=1)
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 4, "logprobs_mode": "processed"}


@pytest.fixture
def policy(project) -> Policy:
    """`editor`, serving version 1, with a plan that takes 4 turns; rows only, no folders."""
    with tenant(project.id):
        policy = create_policy("editor", source="test", actor="test")
        first = register_checkpoint(
            policy,
            version=1,
            parent=None,
            tree_digest="1" * 64,
            folder=f"{policy.id}/v000001",
            num_bytes=1,
            optimizer_step=0,
            actor="test",
            state="serving",
        )
        Deployment.objects.create(policy=policy, checkpoint=first)
        LearningPlan.objects.create(
            policy=policy, reward_spec=plans.latest_reward_spec(), every_turns=4, min_turns=2, max_turns=8
        )
    return policy


@pytest.fixture
def judged(project) -> Callable[..., Turn]:
    """judged("accept", version=1, ...) -> a recorded turn of `editor` with that signal, labelled. None: unsettled."""
    number = itertools.count(1)

    def make(signal: str | None = "accept", *, version: int | None = 1, **fields) -> Turn:
        count = next(number)
        name = fields.pop("id", f"turn-{count:03d}")
        values = {
            "session": f"session-{count}",
            "at": START + timedelta(seconds=count),
            "checkpoint": None if version is None else f"editor@{version}",
            "prompt": "def f(",
            "completion": "x):",
            "prompt_token_ids": [5, 6],
            "completion_token_ids": [7, 8, 0],
            "logprobs": [-0.1, -0.2, -0.3],
            "weight_versions": [(0, 3, version or 0)],
            "sampling": SAMPLING,
            "finish_reason": "stop",
            "user": f"user-{count}",
            **fields,
        }
        receipt = record_turns(project.id, [TurnItem(id=name, **values)], received_at=timezone.now())
        assert receipt.items[0].outcome == "accepted", receipt
        if signal is not None:
            say(project, name, signal)
        with tenant(project.id):
            return Turn.objects.get(turn_id=name)

    return make


@pytest.fixture
def say_signal(project) -> Callable[..., None]:
    """say_signal(turn id, kind, text=...): another signal of its user, labelled at once."""
    return lambda turn_id, kind, **fields: say(project, turn_id, kind, **fields)


signal_number = itertools.count(1)


def say(project, turn_id: str, kind: str, **fields) -> None:
    values = {"id": f"signal-{next(signal_number)}", "at": timezone.now(), **fields}
    signal = SignalItem(turn=turn_id, kind=kind, **values)
    record_items(project.id, [signal], received_at=timezone.now())
    with tenant(project.id):
        label_turns(project.id, [turn_id], now=timezone.now())


@pytest.fixture
def sealed(project, policy) -> Callable[..., UpdateRun]:
    """sealed() -> an update of what is ready now, queued."""

    def make(**options) -> UpdateRun:
        with tenant(project.id):
            pool = sealing.look(policy, **options)
            return sealing.open_update(sealing.prepare(pool, project.id), trigger="person", requested_by="test")

    return make


@pytest.fixture
def trained(project) -> Callable[[UpdateRun], Checkpoint]:
    """trained(run) -> its registered candidate, as the updater leaves it; no weights are written."""

    def make(run: UpdateRun) -> Checkpoint:
        with tenant(project.id):
            assert runs.begin(run.id) is not None
            return runs.finish(
                run.id, tree_digest=f"{run.version:064d}", num_bytes=1, optimizer_step=1, timings={"train": 1.0}
            )

    return make


@pytest.fixture
def promoted(project, sealed, trained) -> Callable[[], Checkpoint]:
    """promoted() -> a checkpoint that learnt what is ready now, and serves; against no gate, for a reason."""

    def make() -> Checkpoint:
        checkpoint = trained(sealed())
        with tenant(project.id):
            promotion.promote(checkpoint, actor="test", reason="a test")
        return checkpoint

    return make
