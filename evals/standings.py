"""Who beats whom: pairwise win rates, a ranking and its drift from votes, each with its interval and n.

Votes of one judge version, or of people; never of both together, and never of two versions of a judge.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db.models import QuerySet

from evals.models import Comparison, JudgeVersion, VerdictKind
from evals.statistics.battles import Battles, battles
from evals.statistics.bradley_terry import RIDGE, Ranking, rank_battles
from evals.statistics.elo import Drift, snapshots
from evals.statistics.wins import WinRate, win_rates

MAX_VOTES = 20_000  # newest, of one page
MAX_NAMES = 12  # of one page, those with most votes
MIN_DECIDED = 5  # fewer are too few to say
RESULTS = {
    VerdictKind.LEFT: 1.0,
    VerdictKind.RIGHT: 0.0,
    VerdictKind.TIE: 0.5,
    VerdictKind.BOTH_BAD: 0.5,
}  # what is not here is undecided


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """One comparison of two sides."""

    left: str
    right: str
    result: float | None  # 1 left, .5 neither, 0 right; None: undecided
    cluster: Hashable = None  # what ties votes together: the problem, or the user; None stands for itself
    at: datetime | None = None  # when it was given


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRate:
    """How often `name` beats `other`."""

    name: str
    other: str
    rate: WinRate


@dataclass(frozen=True, kw_only=True, slots=True)
class Standings:
    """What a set of votes comes to, over the sides with most votes."""

    names: tuple[str, ...]  # best raw win rate first
    pairs: tuple[PairRate, ...]  # every pair that met, once, the better side first; most decided first
    overall: Mapping[str, WinRate]  # against all others
    ranking: Ranking  # plain maximum likelihood, or undefined and why
    with_ridge: Ranking
    drift: Drift  # Elo in the order of the votes: no ranking
    num_votes: int
    num_undecided: int
    num_names_left_out: int

    @property
    def num_decided(self) -> int:
        return self.num_votes - self.num_undecided

    @property
    def cells(self) -> dict[tuple[str, str], WinRate]:
        """(row, column) -> the row's win rate; only pairs that met."""
        there = {(pair.name, pair.other): pair.rate for pair in self.pairs}
        return there | {(pair.other, pair.name): pair.rate.mirrored for pair in self.pairs}


def votes_of_judge(judge: JudgeVersion, *, since: datetime, until: datetime) -> list[Vote]:
    """The newest votes of one version, in the order they were given. Inside a tenant."""
    return _votes(Comparison.objects.filter(by="judge", judge=judge, created_at__gte=since, created_at__lt=until))


def votes_of_people(*, since: datetime, until: datetime) -> list[Vote]:
    """Comparisons that people made here, in the order they were made. Inside a tenant.

    Not here: preference signals, which are the product's, and votes from elsewhere, which stay with their set.
    """
    made_here = Comparison.objects.filter(by="person", set__isnull=True)
    return _votes(made_here.filter(created_at__gte=since, created_at__lt=until))


def _votes(comparisons: QuerySet[Comparison]) -> list[Vote]:
    columns = ("left", "right", "verdict", "problem_id", "created_at")
    rows = list(comparisons.order_by("-created_at", "-id").values_list(*columns)[:MAX_VOTES])
    return [
        Vote(left=left, right=right, result=result_of(verdict), cluster=problem, at=at)
        for left, right, verdict, problem, at in reversed(rows)
        if left != right
    ]


def result_of(verdict: str) -> float | None:
    """1 left, .5 neither, 0 right; None: undecided."""
    return RESULTS.get(VerdictKind(verdict))


def standings(votes: Iterable[Vote], *, max_names: int = MAX_NAMES) -> Standings:
    """Pure; `votes` is read once, in the order they were given."""
    left: list[str] = []
    right: list[str] = []
    result: list[float] = []
    cluster: list[Hashable] = []
    undecided: Counter[tuple[str, str]] = Counter()
    for vote in votes:
        if vote.result is None:
            undecided[vote.left, vote.right] += 1
            continue
        left.append(vote.left)
        right.append(vote.right)
        result.append(vote.result)
        cluster.append(vote.cluster)
    num_undecided = undecided.total()
    met = Counter(left) + Counter(right)
    for pair, times in undecided.items():
        met.update(dict.fromkeys(pair, times))
    kept = {name for name, _ in sorted(met.items(), key=lambda item: (-item[1], item[0]))[:max_names]}
    shown = [place for place, names in enumerate(zip(left, right, strict=True)) if kept.issuperset(names)]
    played = battles(
        [left[place] for place in shown],
        [right[place] for place in shown],
        [result[place] for place in shown],
        cluster=[cluster[place] for place in shown],
    )
    missed = Counter({pair: times for pair, times in undecided.items() if kept.issuperset(pair)})
    overall = _overall(played, kept, missed)
    return Standings(
        names=tuple(sorted(kept, key=lambda name: (-(overall[name].rate or 0.0), name))),
        pairs=_pairs(played, missed),
        overall=overall,
        ranking=rank_battles(played),
        with_ridge=rank_battles(played, ridge=RIDGE),
        drift=snapshots(played),
        num_votes=len(left) + num_undecided,
        num_undecided=num_undecided,
        num_names_left_out=len(met) - len(kept),
    )


def _overall(played: Battles, kept: Iterable[str], missed: Counter[tuple[str, str]]) -> dict[str, WinRate]:
    names = sorted(kept)
    place_of = {name: place for place, name in enumerate(names)}
    here = np.array([place_of[name] for name in played.names], dtype=np.int64)
    lost = np.zeros(len(names), dtype=np.int64)
    for pair, times in missed.items():
        for name in pair:
            lost[place_of[name]] += times
    group = np.concatenate([here[played.left], here[played.right]]) if len(played) else played.left
    results = np.concatenate([played.result, 1 - played.result])
    clusters = np.tile(_clusters(played), 2)
    return dict(zip(names, win_rates(group, results, clusters, undecided=lost), strict=True))


def _pairs(played: Battles, missed: Counter[tuple[str, str]]) -> tuple[PairRate, ...]:
    low, high = np.minimum(played.left, played.right), np.maximum(played.left, played.right)
    result = np.where(played.left == low, played.result, 1 - played.result)
    size = max(1, len(played.names))
    met, group = np.unique(low * size + high, return_inverse=True)
    keys = [(played.names[key // size], played.names[key % size]) for key in met.tolist()]
    lost: Counter[tuple[str, str]] = Counter()
    for (one, other), times in missed.items():
        lost[min(one, other), max(one, other)] += times
    keys += sorted(lost.keys() - set(keys))  # pairs without a single result
    rates = win_rates(group, result, _clusters(played), undecided=np.array([lost[key] for key in keys], dtype=np.int64))
    found = [_better_first(*key, rate) for key, rate in zip(keys, rates, strict=True)]
    return tuple(sorted(found, key=lambda pair: (-pair.rate.n, pair.name, pair.other)))


def _better_first(name: str, other: str, rate: WinRate) -> PairRate:
    if rate.rate is not None and rate.rate < 0.5:
        return PairRate(name=other, other=name, rate=rate.mirrored)
    return PairRate(name=name, other=other, rate=rate)


def _clusters(played: Battles) -> np.ndarray:
    return np.arange(len(played)) if played.cluster is None else played.cluster
