"""The recipe that turns a turn's label and scores into one reward.

    reward = clip(sum of weight x component), unless a gate fails, which sets the reward to the gate's `otherwise`

Unknown is not zero: a turn whose label is unknown, or that lacks a score the recipe needs, has no reward and is left
out. A scorer with weight 0 is shown in the breakdown and asked for nothing. Pure; not here: who trains on it
(rewards.batch).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_BODY: dict[str, Any] = {
    "label": {"weight": 1.0, "accept": 0.75, "reject": -0.25, "silence": 0.0},
    "scorers": {"unit_tests": {"weight": 0.0}, "executability": {"weight": 0.0}},
    "gates": [],
    "clip": [-1.0, 1.0],
}


class InvalidRewardSpec(ValueError):
    """A recipe that cannot be used; `field` is the path of the part that is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreGate:
    """A score every rewarded answer must reach, e.g. executability at least 1."""

    scorer: str
    at_least: float  # in [0, 1]
    otherwise: float  # the reward of an answer that does not reach it


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSpec:
    """One version of the recipe, checked."""

    label_weight: float
    outcomes: Mapping[str, float]  # accept, reject, silence -> reward before weighting
    scorers: Mapping[str, float]  # scorer -> weight; 0 means shown only
    gates: tuple[ScoreGate, ...] = ()
    clip: tuple[float, float] = (-1.0, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """What one turn teaches.

    Example: accept with unit_tests 1.0 at weight 0 -> value .75, breakdown
        {"label": {"outcome": "accept", "value": .75, "weight": 1, "part": .75},
         "unit_tests": {"value": 1, "weight": 0, "part": 0}}
    """

    value: float | None  # None: unknown, leave the turn out
    breakdown: dict[str, Any] = field(default_factory=dict)
    reason: str = ""  # why there is no value, or which gate decided


def parse_reward_spec(body: Any) -> RewardSpec:
    """Check a recipe as stored or posted; raises InvalidRewardSpec naming the field that is wrong."""
    _check_keys(body, "body", {"label", "scorers", "gates", "clip"})
    label = body.get("label", DEFAULT_BODY["label"])
    _check_keys(label, "label", {"weight", "accept", "reject", "silence"})
    outcomes = {
        name: _number(label.get(name, DEFAULT_BODY["label"][name]), f"label.{name}")
        for name in ("accept", "reject", "silence")
    }
    scorers = body.get("scorers", {})
    if not isinstance(scorers, dict):
        raise InvalidRewardSpec("scorers", "must be an object from scorer name to {weight}")
    gates = body.get("gates", [])
    if not isinstance(gates, list):
        raise InvalidRewardSpec("gates", "must be a list of {scorer, at_least, otherwise}")
    spec = RewardSpec(
        label_weight=_number(label.get("weight", 1.0), "label.weight"),
        outcomes=outcomes,
        scorers={str(name): _scorer_weight(name, part) for name, part in scorers.items()},
        gates=tuple(_gate(gate, f"gates.{index}") for index, gate in enumerate(gates)),
        clip=_clip(body.get("clip", DEFAULT_BODY["clip"])),
    )
    if spec.label_weight == 0 and not any(spec.scorers.values()):
        raise InvalidRewardSpec("label.weight", "every weight is 0, so nothing would be learnt; give one a weight")
    return spec


def reward_of(spec: RewardSpec, *, outcome: str, scores: Mapping[str, float | None]) -> Reward:
    """Weigh one turn. `outcome` is accept, reject, silence or unknown; a scorer absent from `scores` is unscored."""
    label_value = spec.outcomes.get(outcome)
    breakdown: dict[str, Any] = {"label": {"outcome": outcome, **_part(label_value, spec.label_weight)}}
    missing = ["the label"] if label_value is None and spec.label_weight != 0 else []
    for name, weight in spec.scorers.items():
        breakdown[name] = _part(scores.get(name), weight)
        if weight != 0 and scores.get(name) is None:
            missing.append(name)
    for gate in spec.gates:
        breakdown.setdefault(gate.scorer, _part(scores.get(gate.scorer), 0.0))
        if scores.get(gate.scorer) is None and gate.scorer not in missing:
            missing.append(gate.scorer)
    if missing:
        return Reward(value=None, breakdown=breakdown, reason=f"unknown: {', '.join(missing)}")
    for gate in spec.gates:
        score = scores[gate.scorer]
        assert score is not None
        if score < gate.at_least:
            breakdown["gate"] = {"scorer": gate.scorer, "at_least": gate.at_least, "score": score}
            reason = f"gate: {gate.scorer} is {score:g}, at least {gate.at_least:g} is asked"
            return Reward(value=_clipped(gate.otherwise, spec.clip), breakdown=breakdown, reason=reason)
    total = math.fsum(part["part"] for part in breakdown.values() if part["part"] is not None)
    return Reward(value=_clipped(total, spec.clip), breakdown=breakdown)


def _part(value: float | None, weight: float) -> dict[str, float | None]:
    return {"value": value, "weight": weight, "part": None if value is None else value * weight}


def _clipped(value: float, clip: tuple[float, float]) -> float:
    return min(max(value, clip[0]), clip[1])


def _scorer_weight(name: str, part: Any) -> float:
    path = f"scorers.{name}"
    if name in ("label", "gate"):
        raise InvalidRewardSpec(path, "this name is taken by the recipe itself")
    _check_keys(part, path, {"weight"})
    if "weight" not in part:
        raise InvalidRewardSpec(f"{path}.weight", "is missing; 0 shows the score without rewarding it")
    return _number(part["weight"], f"{path}.weight")


def _gate(gate: Any, path: str) -> ScoreGate:
    _check_keys(gate, path, {"scorer", "at_least", "otherwise"})
    scorer = gate.get("scorer")
    if not isinstance(scorer, str) or not scorer:
        raise InvalidRewardSpec(f"{path}.scorer", "must name a scorer")
    at_least = _number(gate.get("at_least", 1.0), f"{path}.at_least")
    if not 0 <= at_least <= 1:
        raise InvalidRewardSpec(f"{path}.at_least", f"is {at_least:g}; scores lie in [0, 1]")
    otherwise = _number(gate.get("otherwise", -0.25), f"{path}.otherwise")
    return ScoreGate(scorer=scorer, at_least=at_least, otherwise=otherwise)


def _clip(clip: Any) -> tuple[float, float]:
    if not isinstance(clip, (list, tuple)) or len(clip) != 2:
        raise InvalidRewardSpec("clip", "must be [low, high]")
    low, high = _number(clip[0], "clip.0"), _number(clip[1], "clip.1")
    if low >= high:
        raise InvalidRewardSpec("clip", f"low {low:g} must be below high {high:g}")
    return low, high


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidRewardSpec(path, f"is {value!r}; must be a finite number")
    return float(value)


def _check_keys(value: Any, path: str, allowed: set[str]) -> None:
    if not isinstance(value, dict):
        raise InvalidRewardSpec(path, "must be an object")
    for key in value:
        if key not in allowed:
            where = key if path == "body" else f"{path}.{key}"
            raise InvalidRewardSpec(where, f"is not known; use {', '.join(sorted(allowed))}")
