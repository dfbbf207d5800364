"""Setting the stage: the demo's model, policy, problems and key, all made through the rooms' own services.

Safe to repeat on the same home: what is there stays, and each run brings the next volume of fresh problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from evals.models import Benchmark
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from registry.models import ApiKey, Policy, Scope
from registry.services import change_project_settings, create_key, find_project, revoke_key
from registry.tenancy import tenant
from rl_online.services.plans import change_plan, start_policy
from strop.commands.models import store
from strop.demo import families
from strop.demo.crowd import MAX_TOKENS
from strop.demo.variants import Exercise

PROJECT = POLICY = "editor"
MODEL = "smollm2"
LIVE, GATE = "editor-live", "editor-gate"
GATE_SAMPLING = {"temperature": 0, "max_tokens": MAX_TOKENS, "stop": ["\n"]}
DECISION_WINDOW_S = 5
KEY_NAME = "demo crowd"
ACTOR = "demo"
EVERY_TURNS = 384
QUICK_TURNS = 192
UPDATE_CONFIG: dict[str, Any] = {}  # of UpdateConfig; what is not named here has its default


@dataclass(frozen=True, kw_only=True)
class Stage:
    project_id: UUID
    key: str  # of the crowd: scopes ingest and infer
    benchmark: str  # the live problems, <name>@<version>
    exercises: list[Exercise]  # in the order they are asked
    every_turns: int


def set_stage(*, seed: int, minutes: float, is_quick: bool) -> Stage:
    """Everything the loop needs; downloads and converts the model on a first run."""
    folder = Path(store(MODEL)["folder"])
    project = find_project(PROJECT)
    with tenant(project.id):
        change_project_settings(project, actor=ACTOR, decision_window_s=DECISION_WINDOW_S)
        key = _new_key()
        volume = 1 + Benchmark.objects.filter(name=LIVE).count()
    exercises = families.traffic(seed=seed, volume=volume, size=families.traffic_size(minutes))
    live = create_benchmark(
        project.id,
        LIVE,
        [_spec(exercise, half=families.SEEN_HALF) for exercise in exercises],
        version=volume,
        description=f"What the demo's users ask, seed {seed}, volume {volume}",
        is_held_out=False,
    )
    gate = create_benchmark(
        project.id, GATE, _gate_problems(), description="100 fresh problems of each half", is_held_out=True
    )
    every_turns = QUICK_TURNS if is_quick else EVERY_TURNS
    _policy(project.id, folder, every_turns=every_turns, gate_benchmark=str(gate))
    return Stage(project_id=project.id, key=key, benchmark=str(live), exercises=exercises, every_turns=every_turns)


def _new_key() -> str:
    for old in ApiKey.objects.filter(name=KEY_NAME, revoked_at=None):
        revoke_key(old.prefix, actor=ACTOR, reason="the demo was started again")
    text, _ = create_key(KEY_NAME, [Scope.INGEST, Scope.INFER], actor=ACTOR)
    return text


def _policy(project_id: UUID, folder: Path, **plan: Any) -> Policy:
    wanted = {**plan, "update_config": UPDATE_CONFIG, "gate_sampling": GATE_SAMPLING, "promotion": "automatic"}
    policy = start_policy(project_id, name=POLICY, folder=folder, source=MODEL, actor=ACTOR, **wanted)
    with tenant(project_id):
        change_plan(policy, actor=ACTOR, is_paused=False, **wanted)
    return policy


def _gate_problems() -> Sequence[ProblemSpec]:
    seen = [_spec(exercise, half=families.SEEN_HALF) for exercise in families.held_out_seen()]
    return seen + [_spec(exercise, half=families.UNSEEN_HALF) for exercise in families.held_out_unseen()]


def _spec(exercise: Exercise, *, half: str) -> ProblemSpec:
    return ProblemSpec(
        id=exercise.problem_id,
        prompt=exercise.prompt,
        tests=exercise.tests,
        slices={"family": exercise.family, "half": half},
    )
