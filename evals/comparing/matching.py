"""Which runs of two checkpoints or models measure the same, and why the others do not.

Inside a tenant. What cannot be matched is named with its reason, never left out in silence.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from evals.comparing.names import Name
from evals.models import EvalRun, EvalState

Key = tuple[int, str, str]

MAX_RUNS = 2000  # newest of their kind, of both sides together
KIND = ("checkpoint", "model", "benchmark", "scorer", "sampling", "seconds_per_answer", "num_problems", "state")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPair:
    """Two runs that measure the same: one benchmark version, one scorer, one sampling, one budget, one part of it."""

    a: EvalRun
    b: EvalRun

    @property
    def benchmark(self) -> str:
        return str(self.a.benchmark)

    @property
    def is_complete(self) -> bool:
        return self.a.state == EvalState.DONE and self.b.state == EvalState.DONE


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmatched:
    """A run that has no partner, and why."""

    run: EvalRun
    side: str  # "a" or "b"
    reason: str

    @property
    def name(self) -> str:
        return self.run.checkpoint or self.run.model or ""

    @property
    def benchmark(self) -> str:
        return str(self.run.benchmark)


@dataclass(frozen=True, kw_only=True, slots=True)
class Matching:
    pairs: tuple[RunPair, ...]
    unmatched: tuple[Unmatched, ...]


def match_runs(a: Name, b: Name) -> Matching:
    """The newest runs of both sides, paired where they measure the same. One query."""
    newest: dict[str, dict[Key, EvalRun]] = {"a": {}, "b": {}}
    cancelled: dict[str, dict[Key, EvalRun]] = {"a": {}, "b": {}}
    for run in _runs_of(a, b):
        for side, name in (("a", a), ("b", b)):
            if getattr(run, name.column) == name.text:
                kept = cancelled if run.state == EvalState.CANCELLED else newest
                kept[side].setdefault(_key(run), run)
    shared = newest["a"].keys() & newest["b"].keys()
    pairs = [RunPair(a=newest["a"][key], b=newest["b"][key]) for key in shared]
    lonely = [
        Unmatched(run=run, side=side, reason=_why(run, newest[other].values(), name=str(b if side == "a" else a)))
        for side, other in (("a", "b"), ("b", "a"))
        for key, run in newest[side].items()
        if key not in shared
    ]
    lonely += [
        Unmatched(run=run, side=side, reason="it was cancelled before it was complete")
        for side, runs in cancelled.items()
        for key, run in runs.items()
        if key not in newest[side]
    ]
    return Matching(
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.benchmark, pair.a.scorer, str(pair.a.sampling)))),
        unmatched=tuple(sorted(lonely, key=lambda one: (one.side, str(one.run.benchmark), one.run.scorer))),
    )


def _runs_of(a: Name, b: Name) -> QuerySet[EvalRun]:
    """The newest run of each kind, the newest first: however often one kind ran, it hides no other."""
    either = Q(**{a.column: a.text}) | Q(**{b.column: b.text})
    newest = EvalRun.objects.filter(either).exclude(state=EvalState.FAILED).order_by(*KIND, "-started_at", "-id")
    runs = EvalRun.objects.filter(pk__in=newest.distinct(*KIND).values("pk")).select_related("benchmark")
    return runs.order_by("-started_at", "-id")[:MAX_RUNS]


def _key(run: EvalRun) -> Key:
    budget = [run.sampling, run.seconds_per_answer, run.num_problems]
    return run.benchmark_id, run.scorer, json.dumps(budget, sort_keys=True)


def _why(run: EvalRun, others: Iterable[EvalRun], *, name: str) -> str:
    """The smallest difference to a run of the other side."""
    others = list(others)
    same = [other for other in others if other.benchmark_id == run.benchmark_id]
    alike = [other for other in same if other.scorer == run.scorer]
    if any(other.num_problems != run.num_problems for other in alike):
        return f"{name} was asked another part of it"
    if alike:
        return f"{name} was sampled with other settings there"
    if same:
        return f"{name} was scored there by {', '.join(sorted({other.scorer for other in same}))}"
    versions = sorted({other.benchmark.version for other in others if other.benchmark.name == run.benchmark.name})
    if versions:
        return f"{name} ran version {', '.join(map(str, versions))} of it: other problems"
    return f"{name} has no run on it"
