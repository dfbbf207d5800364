"""Rows as the loop leaves them behind, without running it: for pages to show.

Every function runs inside `with tenant(project.id):`.
"""

import hashlib
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from evals.models import Benchmark, EvalRun, Problem, Score
from feedback.models import AgentSession, Flag, Label, OutcomeCount, Turn, TurnPayload, UserSignal
from feedback.services.recipes import create_recipe
from feedback.services.rollups import count_all_dirty
from jobs.models import Job
from registry.ids import new_id
from registry.models import Checkpoint, Deployment, Policy, Project, SavedView
from registry.services import audit
from registry.tenancy import tenant
from rl_online.alarms import Rule
from rl_online.gate.decision import decide
from rl_online.gate.evidence import Arm, Evidence, Half
from rl_online.models import (
    Alarm,
    BatchSample,
    DryRun,
    EngineHolding,
    EngineReport,
    GateReport,
    LearningPlan,
    RewardBatch,
    RewardSpec,
    UpdateMetric,
    UpdateRun,
)
from rl_online.rewards.composite import DEFAULT_BODY
from rl_online.rewards.update_config import UpdateConfig
from rl_online.services.plans import gate_sampling
from rl_online.services.reward_specs import create_reward_spec


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def make_policy(name: str = "editor", **plan: Any) -> Policy:
    """A policy that serves its first checkpoint and has a plan."""
    policy = Policy.objects.create(name=name, source="smollm2")
    first = make_checkpoint(policy, 1, None, state="serving")
    Deployment.objects.create(policy=policy, checkpoint=first)
    LearningPlan.objects.create(policy=policy, reward_spec=make_spec(), **({"every_turns": 96, "min_turns": 64} | plan))
    return policy


def make_spec() -> RewardSpec:
    spec = {"body": DEFAULT_BODY, "digest": digest(1)}
    return RewardSpec.objects.get_or_create(name="default", version=1, defaults=spec)[0]


def make_checkpoint(policy: Policy, version: int, parent: Checkpoint | None, *, state: str) -> Checkpoint:
    checkpoint = Checkpoint.objects.create(
        policy=policy,
        version=version,
        parent=parent,
        state=state,
        tree_digest=digest(policy.name, version),
        folder=f"{policy.id}/v{version:06d}",
        num_bytes=269_060_552,
        optimizer_step=(version - 1) * 6,
    )
    audit("register", "checkpoint", checkpoint, actor="strop", after={"state": state})
    return checkpoint


@dataclass
class Made:
    """A turn to be made, with what belongs to it."""

    turn: Turn
    payload: TurnPayload
    signals: list[UserSignal]
    label: Label | None


def make_turn(session_id: str, **said: Any) -> Turn:
    """A settled turn with its payload, signals and label; outcome None is not settled yet. Options: `plan_turn`."""
    return make_turns([{"session_id": session_id} | said])[0]


def make_turns(rows: list[dict[str, Any]]) -> list[Turn]:
    """Many at once: a turn costs as little as a row of a long statement."""
    names = {row["session_id"] for row in rows}
    sessions = {one.session_id: one for one in AgentSession.objects.filter(session_id__in=names)}
    known = list(sessions.values())
    made = [plan_turn(sessions, **row) for row in rows]
    AgentSession.objects.bulk_create([one for one in sessions.values() if one.pk is None])
    AgentSession.objects.bulk_update(known, ["last_at", "num_turns"])
    for one in made:
        one.turn.session = one.turn.session  # by its key, now that it has one
    turns = Turn.objects.bulk_create([one.turn for one in made])
    with connection.cursor() as cursor:
        for at in {(turn.at.year, turn.at.month): turn.at for turn in turns}.values():
            cursor.execute("SELECT feedback_ensure_payload_month(%s)", [at])
    TurnPayload.objects.bulk_create([one.payload for one in made])
    signals = [signal for one in made for signal in one.signals]
    labels = [one.label for one in made if one.label]
    for child in (*signals, *labels):
        child.turn = child.turn
    UserSignal.objects.bulk_create(signals)
    Label.objects.bulk_create(labels)
    for label in labels:
        label.turn.label = label
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE feedback_turn SET label_id = made.id FROM feedback_label made "
            "WHERE made.turn_id = feedback_turn.id AND made.id = ANY(%s)",
            [[label.id for label in labels]],
        )
    return turns


def plan_turn(
    sessions: dict[str, AgentSession],
    session_id: str,
    *,
    index: int = 0,
    at: datetime | None = None,
    version: int | None = 1,
    user: str | None = "u-1",
    outcome: str | None = "accept",
    signals: tuple[str, ...] = ("accept",),
    completion: str = "    return a + 2",
    asked: str = "Complete this function:\ndef add_two(a):",
    edited_to: str | None = None,
    surface: str = "completion",
    **columns: Any,
) -> Made:
    at = at or timezone.now() - timedelta(minutes=5)
    session = sessions.setdefault(
        session_id, AgentSession(session_id=session_id, user=user, surface=surface, first_at=at, last_at=at)
    )
    session.last_at, session.num_turns = max(session.last_at, at), session.num_turns + 1
    turn = Turn(
        **{
            "turn_id": new_id(),
            "session": session,
            "index": index,
            "at": at,
            "policy": "editor" if version is not None else None,
            "version": version,
            "user": user,
            "surface": surface,
            "language": "python",
            "input_tokens": 42,
            "output_tokens": 9,
            "ttft_ms": 61.5,
            "latency_ms": 182.0,
            "finish_reason": "stop",
            "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "logprobs_mode": "processed"},
            "has_logprobs": version is not None,
            "num_completion_chars": len(completion),
        }
        | columns
    )
    payload = TurnPayload(
        project_id=turn.project_id,
        turn_id=turn.turn_id,
        at=at,
        messages=[{"role": "user", "content": asked}],
        completion=completion,
        prompt_token_ids=[1, 2, 3],
        completion_token_ids=[4, 5, 2],
        logprobs=[-0.1, -0.7, -0.2],
        weight_versions=[[0, 3, version]],
    )
    kinds = [(kind, 3 + order, None) for order, kind in enumerate(signals)]
    if edited_to is not None:
        kinds.append(("edit", 6, edited_to))
    spoken = [_signal(turn, kind, at=at + timedelta(seconds=after), text=text) for kind, after, text in kinds]
    return Made(turn, payload, spoken, None if outcome is None else _settled(turn, outcome))


def make_signal(turn: Turn, kind: str, *, at: datetime, text: str | None = None) -> UserSignal:
    signal = _signal(turn, kind, at=at, text=text)
    signal.save()
    return signal


def _signal(turn: Turn, kind: str, *, at: datetime, text: str | None = None) -> UserSignal:
    return UserSignal(signal_id=new_id(), turn_ref=turn.turn_id, turn=turn, kind=kind, at=at, user=turn.user, text=text)


def settle(turn: Turn, outcome: str) -> Label:
    label = _settled(turn, outcome)
    label.save()
    turn.label = label
    turn.save()
    return label


def _settled(turn: Turn, outcome: str) -> Label:
    """The turn's label; both still to be stored."""
    value = {"accept": 1.0, "reject": -1.0}.get(outcome, 0.0)
    turn.outcome, turn.settled_at = outcome, turn.at + timedelta(seconds=5)
    return Label(turn=turn, recipe_version=1, outcome=outcome, value=value, reason=f"{outcome} 3.0 s after the answer")


def make_flag(turn: Turn, rule: str = "tests_disagree", **columns: Any) -> Flag:
    return Flag.objects.create(
        turn=turn, rule=rule, reason="the tests pass, the user rejected it: one of them is wrong", **columns
    )


def make_score(turn: Turn, value: float | None, *, scorer: str = "unit_tests") -> Score:
    return make_scores([(turn, value)], scorer=scorer)[0]


def make_scores(values: list[tuple[Turn, float | None]], *, scorer: str = "unit_tests") -> list[Score]:
    return Score.objects.bulk_create(
        [
            Score(
                turn_ref=turn.turn_id, scorer=scorer, status="scored" if value is not None else "infra", value=value,
                explanation="3 of 3 tests passed",
            )
            for turn, value in values
        ]
    )  # fmt: skip


def make_batch(policy: Policy, turns: list[Turn]) -> RewardBatch:
    rewards = {"accept": 0.75, "reject": -0.25}
    values = [rewards.get(turn.outcome or "", 0.0) for turn in turns]
    batch = RewardBatch.objects.create(
        policy=policy,
        digest=digest("batch", new_id()),
        kind="rl",
        reward_spec=make_spec(),
        num_samples=len(turns),
        num_tokens=51 * len(turns),
        reward_mean=sum(values) / max(1, len(values)),
        dropped={"origin_unknown": 3, "too_old": 1},
    )
    BatchSample.objects.bulk_create(
        BatchSample(
            batch=batch,
            turn_ref=turn.turn_id,
            session_ref=turn.session.session_id,
            label_id=turn.label_id,
            slice="completion",
            reward=value,
            baseline=0.2,
        )
        for turn, value in zip(turns, values, strict=True)
    )
    return batch


def make_update(
    policy: Policy,
    batch: RewardBatch,
    *,
    parent: Checkpoint,
    version: int,
    state: str = "promoted",
    checkpoint: Checkpoint | None = None,
    steps: int = 6,
    **columns: Any,
) -> UpdateRun:
    config = UpdateConfig()
    now = timezone.now()
    is_over = state in ("promoted", "held", "cancelled", "failed")
    run = UpdateRun.objects.create(
        **{
            "policy": policy,
            "batch": batch,
            "parent": parent,
            "checkpoint": checkpoint,
            "version": version,
            "state": state,
            "trigger": "schedule",
            "requested_by": "strop",
            "config": config.to_json(),
            "config_digest": config.digest,
            "seed": version,
            "step": steps,
            "num_steps": 6,
            "seconds_left": None if is_over else 12.0,
            "tokens_per_s": 2431.0,
            "timings": {"wait": 0.4, "seal": 0.6, "train": 21.3, "prove": 31.0, "publish": 1.2, "swap": 2.1}
            if is_over
            else {},
            "started_at": now - timedelta(seconds=50),
            "finished_at": now if is_over else None,
        }
        | columns
    )
    UpdateRun.objects.filter(pk=run.pk).update(created_at=now - timedelta(seconds=56.6))
    for step in range(1, steps + 1):
        UpdateMetric.objects.create(run=run, step=step, values=metrics(step))
    return run


def metrics(step: int) -> dict[str, float]:
    return {
        "reward": 0.21 + 0.03 * step,
        "loss": -0.02 * step,
        "kl": 0.0008 * step * step,
        "ratio_mean": 1 + 0.004 * step,
        "grad_norm": 1.8 / step,
        "clipped_share": 0.01 * step,
        "ess_share": 0.98 - 0.01 * step,
        "loss_rl": -0.02 * step,
        "is_applied": float(step != 3),
    }


def make_dry_run(policy: Policy, *, state: str = "done", **columns: Any) -> DryRun:
    steps = [metrics(1), metrics(2)] if state == "done" else []
    return DryRun.objects.create(
        **{
            "policy": policy,
            "parent": Checkpoint.objects.filter(policy=policy).latest("version"),
            "kind": "rl",
            "state": state,
            "requested_by": "ada",
            "config": UpdateConfig(learning_rate=2e-5).to_json(),
            "num_samples": 8,
            "num_tokens": 412,
            "steps": steps,
            "load_s": 1.2,
            "seconds": 0.9,
            "tokens_per_s": 458.0,
            "peak_bytes": 1_210_000_000,
            "device": "cpu",
            "finished_at": timezone.now() if state not in ("queued", "running") else None,
        }
        | columns
    )


def make_heldout(policy: Policy, checkpoint: Checkpoint, *, right: int, wrong: int) -> EvalRun:
    """The checkpoint's answers to a gate benchmark that the plan names from now on."""
    benchmark, _ = Benchmark.objects.get_or_create(name="gate", version=1)
    LearningPlan.objects.filter(policy=policy).update(gate_benchmark="gate@1")
    plan = LearningPlan.objects.get(policy=policy)
    run = EvalRun.objects.create(
        benchmark=benchmark,
        checkpoint=str(checkpoint),
        scorer="unit_tests",
        sampling=gate_sampling(plan),
        state="done",
    )
    for number in range(right + wrong):
        problem, _ = Problem.objects.get_or_create(
            benchmark=benchmark, problem_id=f"p/{number}", defaults={"prompt": "1 + 1 =", "slices": {"half": "seen"}}
        )
        Score.objects.create(
            run=run, problem=problem, scorer="unit_tests", status="scored", value=float(number < right), output=" 2"
        )
    return run


def make_train_facts(loop: "Loop") -> dict[str, Any]:
    """A policy's name, a gate report and a dry run, for addresses."""
    with tenant(loop.policy.project_id):
        report = GateReport.objects.order_by("pk").first()
        assert report is not None
        return {"policy": loop.policy.name, "report": report.pk, "dry_run": make_dry_run(loop.policy).pk}


def make_engine(name: str = "engine-1", **columns: Any) -> EngineReport:
    return EngineReport.objects.create(
        **{
            "engine": name,
            "code_version": "0.3.0",
            "adapter": "embedded",
            "device": "cpu",
            "host": "box-1",
            "pid": 4711,
            "threads": 2,
            "max_batch": 32,
            "max_waiting": 256,
            "running": 3,
            "waiting": 1,
            "uptime_s": 7260.0,
            "tokens_generated": 1_204_331,
            "requests_refused": 2,
            "loads": 4,
            "load_failures": 1,
            "tokens_per_s": 212.5,
        }
        | columns
    )


def make_report(checkpoint: Checkpoint, baseline: Checkpoint, *, gain: float = 0.08, run: UpdateRun | None = None):
    """A real decision on made-up scores: `gain` is how many more problems the candidate solves."""
    chance = random.Random(checkpoint.version)
    halves = []
    for name, base in (("seen families", 0.45), ("unseen families", 0.40)):
        keys = [f"{name[:1]}{i}" for i in range(100)]
        old = {key: float(chance.random() < base) for key in keys}
        new = {key: _moved(value, gain, chance) for key, value in old.items()}
        halves.append(
            Half(
                name=name,
                families={key: f"family {i % 8}" for i, key in enumerate(keys)},
                candidate=new,
                baselines=(
                    Arm(role="serving", checkpoint=str(baseline), scores=old),
                    Arm(role="first", checkpoint=f"{checkpoint.policy.name}@1", scores=old),
                ),
            )
        )
    decision = decide(Evidence(candidate=str(checkpoint), halves=tuple(halves))).to_json()
    return GateReport.objects.create(
        checkpoint=checkpoint,
        run=run,
        decision=decision["decision"],
        reasons=decision["reasons"],
        evidence=decision["evidence"],
        judge=JUDGE,
    )


JUDGE = {
    "name": "pairwise", "model": "smollm2-135m (frozen base)", "num_pairs": 10, "wins": 4, "ties": 3, "losses": 2,
    "invalid": 1, "errors": 0, "win_rate": 0.61, "low": 0.35, "high": 0.82, "agreement": 0.55, "agreement_low": 0.28,
    "agreement_high": 0.79, "kappa": 0.12, "kappa_low": -0.3, "kappa_high": 0.5, "num_compared": 9, "has_vote": False,
    "sentence": "shown without a vote: agreement with the tests is not above chance",
}  # fmt: skip


def _moved(value: float, gain: float, chance: random.Random) -> float:
    """Some answers change; `gain` above 0 turns wrong into right, below 0 right into wrong."""
    if value == (0.0 if gain > 0 else 1.0) and chance.random() < abs(gain) * 2:
        return 1.0 - value
    return value


def make_view(project: Project, *, name: str, query: str, page: str = "turns", is_shared: bool = True) -> SavedView:
    """A saved view of somebody who is none of the people of the tests; needs no tenant around it."""
    saver, _ = get_user_model().objects.get_or_create(username="saver")
    with tenant(project.id):
        return SavedView.objects.create(page=page, name=name, query=query, owner=saver, is_shared=is_shared)


@dataclass
class Loop:
    """Everything `make_loop` made."""

    policy: Policy
    turns: list[Turn] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    updates: list[UpdateRun] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)


def make_loop(*, num_turns: int = 40, is_training: bool = True) -> Loop:
    """A loop after two rounds: version 2 promoted, 3 held, 4 in training; sessions of several users, three flags."""
    chance = random.Random(0)
    policy = make_policy()
    loop = Loop(policy)
    first = Checkpoint.objects.get(policy=policy, version=1)
    second = make_checkpoint(policy, 2, first, state="serving")
    third = make_checkpoint(policy, 3, second, state="candidate")
    Checkpoint.objects.filter(pk=first.pk).update(state="retired")
    Deployment.objects.update(checkpoint=second, previous=first, fence=2)
    loop.checkpoints = [first, second, third]
    now = timezone.now()
    rows = []
    for i in range(num_turns):
        version = 1 + (i * 2 // num_turns)
        outcome = "accept" if chance.random() < 0.35 + 0.2 * version else chance.choice(["reject", "silence"])
        rows.append(
            {
                "session_id": f"edit-{i // 3}",
                "index": i % 3,
                "at": now - timedelta(minutes=50 * (num_turns - i) / num_turns),
                "version": version,
                "user": f"u-{i // 3 % 7}",
                "outcome": outcome,
                "signals": ("shown",) if outcome == "silence" else ("shown", outcome),
                "completion": chance.choice(["    return a + 2", "    return a * a", "    return sorted(a)[-1]"]),
                "edited_to": "    return a + 2  # checked" if i % 11 == 0 else None,
            }
        )
    loop.turns = make_turns(rows)
    make_scores([(turn, float(turn.outcome == "accept")) for turn in loop.turns])
    make_turn("edit-open", outcome=None, signals=("shown",), version=2)
    loop.flags = [make_flag(turn) for turn in loop.turns[1:4]]
    half = num_turns // 2
    promoted = make_update(
        policy, make_batch(policy, loop.turns[:half]), parent=first, version=2, checkpoint=second, state="promoted"
    )
    make_report(second, first, gain=0.08, run=promoted)
    audit(
        "promote", "checkpoint", second, actor="strop",
        before={"serving": str(first)}, after={"serving": str(second), "fence": 2},
    )  # fmt: skip
    held = make_update(
        policy, make_batch(policy, loop.turns[half:]), parent=second, version=3, checkpoint=third, state="held"
    )
    make_report(third, second, gain=-0.12, run=held)
    loop.updates = [promoted, held]
    if is_training:
        loop.updates.append(
            make_update(policy, make_batch(policy, []), parent=second, version=4, state="training", steps=4)
        )
    EngineHolding.objects.create(engine="engine-1", checkpoint=second, tree_digest=second.tree_digest)
    hour = now.replace(minute=0, second=0, microsecond=0)
    for name, n in (("accepted", 1204), ("duplicate", 31), ("invalid", 2), ("request:401", 1)):
        OutcomeCount.objects.create(hour=hour, outcome=name, count=n)
    count_all_dirty(policy.project_id)
    return loop


def make_given_up_job(project, *, error: str = "ValueError: it failed", kind: str = "rl_online.score_turn") -> Job:
    """A job of the project that failed five times."""
    return Job.objects.create(
        kind=kind, project_id=project.id, state="quarantined", run_at=timezone.now(), attempts=5, last_error=error
    )


def make_alarm(
    project: Project, rule: str = "share_drop", *, policy: str = "editor", state: str = "open", **columns: Any
) -> Alarm:
    """An alarm found three minutes ago."""
    at = timezone.now() - timedelta(minutes=3)
    summary = "Users accept 38.2% of editor@2 (33.1% to 43.6%, n 340); of editor@1 it was 51.0% (n 402)"
    facts = {"summary": summary, "opened_at": at, "raised_at": at, "severity": Rule(rule).severity}
    with tenant(project.id):
        return Alarm.objects.create(rule=rule, subject=policy, state=state, **facts | columns)


def make_recipes(project: Project) -> dict[str, Any]:
    """A label recipe 2 and a reward spec default v2, neither in force; the names that addresses take."""
    with tenant(project.id):
        recipe = create_recipe({"partial_threshold": 0.3}, actor="owner", reason="half is enough")
        label = DEFAULT_BODY["label"] | {"silence": -0.1}
        spec = create_reward_spec(DEFAULT_BODY | {"label": label}, actor="owner", reason="silence costs")
    return {"recipe": recipe.version, "spec": spec.name, "spec_version": spec.version}
