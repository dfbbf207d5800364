"""The recipe that turns a turn's label and scores into one reward.

    reward = clip(label weight x label + scale x sum of weight x score), unless a gate fails: the gate's `otherwise`

Unknown is not zero: a turn whose label is unknown, or that lacks a score the recipe needs, has no reward and is left
out. An `optional` score that could not be measured is left out alone, and `scale` gives the other scores its weight:
sum of all weights / sum of the weights of those measured; where nothing is missing it is 1. A score whose `needs` are
not met pays nothing, measured or not. A scorer with weight 0 is shown in the breakdown and asked for nothing. Pure; not
here: who trains on it (rewards.batch).
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

# For code judged by tests alone. Executability is the heaviest part, then tests, then the two auxiliaries, which pay
# only for code that runs and, for speed, is right. Code that does not run costs; what only recites the prompt's
# examples, returns a constant, ends its process or meddles with the harness gets nothing (scorer `generality`).
CODE_BODY: dict[str, Any] = {
    "label": {"weight": 0.0, "accept": 0.75, "reject": -0.25, "silence": 0.0},
    "scorers": {
        "executability": {"weight": 0.4},
        "test_share": {"weight": 0.3},
        "code_quality": {"weight": 0.15, "optional": True, "needs": {"executability": 1.0}},
        "efficiency": {"weight": 0.15, "optional": True, "needs": {"executability": 1.0, "test_share": 1.0}},
    },
    "gates": [
        {"scorer": "executability", "at_least": 1.0, "otherwise": -0.25},
        {"scorer": "generality", "at_least": 1.0, "otherwise": 0.0},
    ],
    "clip": [-1.0, 1.0],
}

RESERVED = ("label", "gate", "scale", "override")  # what a breakdown says beside its scores

BODIES = {"default": DEFAULT_BODY, "code": CODE_BODY}  # the recipes that stand ready, by name


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
class Component:
    """What one score pays."""

    weight: float  # 0 means shown only
    is_optional: bool = False  # a turn without it is rewarded by the rest
    needs: Mapping[str, float] = field(default_factory=dict)  # scorer -> the least at which this one pays


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSpec:
    """One version of the recipe, checked."""

    label_weight: float
    outcomes: Mapping[str, float]  # accept, reject, silence -> reward before weighting
    scorers: Mapping[str, Component]
    gates: tuple[ScoreGate, ...] = ()
    clip: tuple[float, float] = (-1.0, 1.0)

    @property
    def asked(self) -> frozenset[str]:
        """Every scorer it mentions."""
        needed = (name for one in self.scorers.values() for name in one.needs)
        return frozenset({*self.scorers, *needed, *(gate.scorer for gate in self.gates)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """What one turn teaches.

    Example: accept with unit_tests 1.0 at weight 0 -> value .75, breakdown
        {"label": {"outcome": "accept", "value": .75, "weight": 1, "part": .75},
         "unit_tests": {"value": 1, "weight": 0, "part": 0}}
    A part that is not simply value x weight says why under "reason"; where a missing one was made up for, "scale"
    stands beside them. Parts add up to the value before clipping.
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
        scorers={str(name): _component(name, part) for name, part in scorers.items()},
        gates=tuple(_gate(gate, f"gates.{index}") for index, gate in enumerate(gates)),
        clip=_clip(body.get("clip", DEFAULT_BODY["clip"])),
    )
    if spec.label_weight == 0 and not any(one.weight for one in spec.scorers.values()):
        raise InvalidRewardSpec("label.weight", "every weight is 0, so nothing would be learnt; give one a weight")
    _check_optional(spec.scorers)
    return spec


def reward_of(spec: RewardSpec, *, outcome: str, scores: Mapping[str, float | None]) -> Reward:
    """Weigh one turn. `outcome` is accept, reject, silence or unknown; a scorer absent from `scores` is unscored."""
    label_value = spec.outcomes.get(outcome)
    label = {"outcome": outcome, **_part(label_value, spec.label_weight)}
    parts = {name: _part_of(one, name, scores) for name, one in spec.scorers.items()}
    scale = _scale(spec.scorers, parts)
    for part in parts.values():
        part |= {"weight": part["weight"] * scale, "part": None if part["part"] is None else part["part"] * scale}
    breakdown: dict[str, Any] = {"label": label, **parts, **({} if scale == 1 else {"scale": scale})}
    for gate in spec.gates:
        breakdown.setdefault(gate.scorer, _part(scores.get(gate.scorer), 0.0))
    if missing := _missing(spec, parts, scores, has_label=label_value is not None):
        return Reward(value=None, breakdown=breakdown, reason=f"unknown: {', '.join(missing)}")
    for gate in spec.gates:
        score = scores[gate.scorer]
        assert score is not None
        if score < gate.at_least:
            breakdown["gate"] = {"scorer": gate.scorer, "at_least": gate.at_least, "score": score}
            reason = f"gate: {_too_low(gate.scorer, score, gate.at_least)}"
            return Reward(value=_clipped(gate.otherwise, spec.clip), breakdown=breakdown, reason=reason)
    total = math.fsum(part["part"] for part in (label, *parts.values()) if part["part"] is not None)
    return Reward(value=_clipped(total, spec.clip), breakdown=breakdown)


def _part_of(one: Component, name: str, scores: Mapping[str, float | None]) -> dict[str, Any]:
    """What a score pays before scaling; `part` is None where it, or what it needs, was not measured."""
    value = scores.get(name)
    for needed, least in one.needs.items():
        found = scores.get(needed)
        if found is None:
            return {**_part(value, one.weight), "part": None, "reason": f"{needed} was not measured"}
        if found < least:
            return {**_part(value, one.weight), "part": 0.0, "reason": _too_low(needed, found, least)}
    if value is None and one.is_optional:
        return {**_part(None, one.weight), "reason": "not measured; the other scores have its weight"}
    return _part(value, one.weight)


def _scale(scorers: Mapping[str, Component], parts: dict[str, dict[str, Any]]) -> float:
    """What makes up for the optional scores that are not there."""
    left_out = [name for name, one in scorers.items() if one.is_optional and parts[name]["part"] is None]
    if not any(scorers[name].weight for name in left_out):
        return 1.0
    whole = math.fsum(one.weight for one in scorers.values())
    there = math.fsum(one.weight for name, one in scorers.items() if name not in left_out)
    for name in left_out:
        parts[name]["weight"] = 0.0
    return whole / there


def _missing(
    spec: RewardSpec, parts: Mapping[str, Mapping[str, Any]], scores: Mapping[str, float | None], *, has_label: bool
) -> list[str]:
    missing = [] if has_label or spec.label_weight == 0 else ["the label"]
    missing += [
        name
        for name, one in spec.scorers.items()
        if one.weight != 0 and not one.is_optional and parts[name]["part"] is None
    ]
    unmeasured = [gate.scorer for gate in spec.gates if scores.get(gate.scorer) is None]
    return list(dict.fromkeys([*missing, *unmeasured]))


def _too_low(scorer: str, score: float, at_least: float) -> str:
    return f"{scorer} is {score:g}, at least {at_least:g} is asked"


def _part(value: float | None, weight: float) -> dict[str, float | None]:
    return {"value": value, "weight": weight, "part": None if value is None else value * weight}


def _clipped(value: float, clip: tuple[float, float]) -> float:
    return min(max(value, clip[0]), clip[1])


def _component(name: str, part: Any) -> Component:
    path = f"scorers.{name}"
    if name in RESERVED:
        raise InvalidRewardSpec(path, "this name is taken by the recipe itself")
    _check_keys(part, path, {"weight", "optional", "needs"})
    if "weight" not in part:
        raise InvalidRewardSpec(f"{path}.weight", "is missing; 0 shows the score without rewarding it")
    is_optional = part.get("optional", False)
    if not isinstance(is_optional, bool):
        raise InvalidRewardSpec(f"{path}.optional", f"is {is_optional!r}; must be true or false")
    needs = part.get("needs", {})
    if not isinstance(needs, dict):
        raise InvalidRewardSpec(f"{path}.needs", "must be an object from scorer name to the least it must reach")
    return Component(
        weight=_number(part["weight"], f"{path}.weight"),
        is_optional=is_optional,
        needs={str(needed): _share(least, f"{path}.needs.{needed}") for needed, least in needs.items()},
    )


def _check_optional(scorers: Mapping[str, Component]) -> None:
    """An optional score's weight must have somewhere to go."""
    if not any(one.is_optional and one.weight for one in scorers.values()):
        return
    for name, one in scorers.items():
        if one.weight < 0:
            raise InvalidRewardSpec(f"scorers.{name}.weight", "is below 0; not beside optional scores")
    if not any(one.weight for one in scorers.values() if not one.is_optional):
        raise InvalidRewardSpec("scorers", "all that have a weight are optional; one must always be there")


def _gate(gate: Any, path: str) -> ScoreGate:
    _check_keys(gate, path, {"scorer", "at_least", "otherwise"})
    scorer = gate.get("scorer")
    if not isinstance(scorer, str) or not scorer:
        raise InvalidRewardSpec(f"{path}.scorer", "must name a scorer")
    at_least = _share(gate.get("at_least", 1.0), f"{path}.at_least")
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


def _share(value: Any, path: str) -> float:
    number = _number(value, path)
    if not 0 <= number <= 1:
        raise InvalidRewardSpec(path, f"is {number:g}; scores lie in [0, 1]")
    return number


def _check_keys(value: Any, path: str, allowed: set[str]) -> None:
    if not isinstance(value, dict):
        raise InvalidRewardSpec(path, "must be an object")
    for key in value:
        if key not in allowed:
            where = key if path == "body" else f"{path}.{key}"
            raise InvalidRewardSpec(where, f"is not known; use {', '.join(sorted(allowed))}")
