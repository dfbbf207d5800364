"""Label recipes and reward specs: their versions, who made and activated them, and how two versions differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count

from evals.scorers.registry import SCORERS
from feedback.models import LabelRecipe
from feedback.services.recipes import recipe_in_force
from registry.models import AuditEvent
from rl_online.models import LearningPlan, RewardBatch, RewardSpec

MAX_VERSIONS = 200
MAX_ACTIVATIONS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """Who made a version, when and why."""

    at: datetime
    actor: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One value that two versions write differently."""

    path: str  # label.accept, gates.0.scorer
    before: str | None  # None: not there
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRow:
    """One version of the label recipe."""

    recipe: LabelRecipe
    is_in_force: bool
    made: Made | None  # None: nobody made it, it is the default
    changes: list[Difference]  # from the version before


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecRow:
    """One version of a reward spec."""

    spec: RewardSpec
    policies: list[str]  # that learn by it now
    made: Made | None
    changes: list[Difference]
    num_batches: int = 0  # sealed by it


@dataclass(frozen=True, kw_only=True, slots=True)
class Activation:
    at: datetime
    actor: str
    what: str
    before: str
    reason: str


def label_recipes() -> list[RecipeRow]:
    """Newest first; the default is version 1 from the first look on."""
    in_force = recipe_in_force()
    rows = list(LabelRecipe.objects.order_by("-version")[:MAX_VERSIONS])
    made = _made("label recipe")
    return [
        RecipeRow(
            recipe=row,
            is_in_force=row.pk == in_force.pk,
            made=made.get(str(row.version)),
            changes=differences(before.body, row.body) if before else [],
        )
        for row, before in _with_predecessor(rows)
    ]


def reward_specs() -> list[SpecRow]:
    """By name, newest first."""
    rows = list(RewardSpec.objects.order_by("name", "-version")[:MAX_VERSIONS])
    made = _made("reward spec")
    batches = dict(RewardBatch.objects.values_list("reward_spec").annotate(n=Count("id")))
    learners: dict[int, list[str]] = {}
    for spec, policy in LearningPlan.objects.order_by("policy__name").values_list("reward_spec", "policy__name"):
        learners.setdefault(spec, []).append(policy)
    return [
        SpecRow(
            spec=row,
            policies=learners.get(row.pk, []),
            made=made.get(str(row)),
            changes=differences(before.body, row.body) if before and before.name == row.name else [],
            num_batches=batches.get(row.pk, 0),
        )
        for row, before in _with_predecessor(rows)
    ]


def activations(kind: str) -> list[Activation]:
    """Of `label recipe` or `reward spec`, newest first."""
    events = AuditEvent.objects.filter(object_kind=kind, verb="activate").order_by("-at", "-id")[:MAX_ACTIVATIONS]
    return [
        Activation(
            at=event.at,
            actor=event.actor,
            what=" for ".join(filter(None, [event.object_id, (event.after or {}).get("policy")])),
            before=str((event.before or {}).get("spec") or (event.before or {}).get("version") or ""),
            reason=event.reason,
        )
        for event in events
    ]


def scorers_offered(body: Mapping[str, Any]) -> list[str]:
    """Those a spec names, and those there are."""
    return sorted({*body.get("scorers", {}), *SCORERS})


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Every leaf that differs, by its path; a leaf that one side lacks is None there."""
    old, new = _flat(before), _flat(after)
    return [
        Difference(path=path, before=_written(old, path), after=_written(new, path))
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]


def _written(leaves: Mapping[str, Any], path: str) -> str | None:
    if path not in leaves:
        return None
    value = leaves[path]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = [(str(index), part) for index, part in enumerate(value)]
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for name, part in parts:
        found |= _flat(part, f"{path}.{name}" if path else str(name))
    return found


def _with_predecessor(rows: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(rows, [*rows[1:], None], strict=False))


def _made(kind: str) -> dict[str, Made]:
    events = AuditEvent.objects.filter(object_kind=kind, verb="create").order_by("-at")[: 2 * MAX_VERSIONS]
    return {event.object_id: Made(at=event.at, actor=event.actor, reason=event.reason) for event in events}
