"""Who beats whom: pairwise win rates and a ranking from votes, each with its interval and n.

Votes of one judge version, or of people; never of both together, and never of two versions of a judge.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from evals.models import Comparison, ComparisonSet, JudgeVersion, VerdictKind
from evals.statistics.bradley_terry import RIDGE, Game, Ranking, rank
from evals.statistics.wins import WinRate, win_rate

MAX_VOTES = 20_000  # newest
MAX_NAMES = 12  # of one matrix, those with most votes
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
    cluster: Hashable = None  # what ties votes together: the problem, or the user


@dataclass(frozen=True, kw_only=True, slots=True)
class Standings:
    """What a set of votes comes to, over the sides with most votes."""

    names: tuple[str, ...]  # best raw win rate first
    cells: Mapping[tuple[str, str], WinRate]  # (row, column) -> the row's win rate; only pairs that met
    overall: Mapping[str, WinRate]  # against all others
    ranking: Ranking  # plain maximum likelihood, or undefined and why
    with_ridge: Ranking
    num_votes: int
    num_undecided: int
    num_names_left_out: int

    @property
    def num_decided(self) -> int:
        return self.num_votes - self.num_undecided


def votes_of_judge(judge: JudgeVersion, *, since: datetime, until: datetime) -> list[Vote]:
    """The newest votes of one version. Inside a tenant."""
    return _votes(Comparison.objects.filter(by="judge", judge=judge, created_at__gte=since, created_at__lt=until))


def votes_of_people(*, since: datetime, until: datetime) -> list[Vote]:
    """Comparisons that people made here. Inside a tenant.

    Not here: preference signals, which are the product's, and votes from elsewhere, which stay with their set.
    """
    made_here = Comparison.objects.filter(by="person", set__isnull=True)
    return _votes(made_here.filter(created_at__gte=since, created_at__lt=until))


def votes_of_set(comparisons: ComparisonSet) -> list[Vote]:
    """The newest votes of one imported file. Inside a tenant."""
    return _votes(Comparison.objects.filter(set=comparisons))


def _votes(comparisons: QuerySet[Comparison]) -> list[Vote]:
    rows = comparisons.order_by("-created_at", "-id").values_list("left", "right", "verdict", "problem_id")
    return [
        Vote(left=left, right=right, result=RESULTS.get(VerdictKind(verdict)), cluster=problem)
        for left, right, verdict, problem in rows[:MAX_VOTES]
        if left != right
    ]


def standings(votes: Sequence[Vote], *, max_names: int = MAX_NAMES) -> Standings:
    """Pure."""
    met = Counter(name for vote in votes for name in (vote.left, vote.right))
    kept = {name for name, _ in sorted(met.items(), key=lambda item: (-item[1], item[0]))[:max_names]}
    shown = [vote for vote in votes if vote.left in kept and vote.right in kept]
    games = [
        Game(left=vote.left, right=vote.right, result=vote.result, cluster=vote.cluster)
        for vote in shown
        if vote.result is not None
    ]
    overall = {name: _rate([seen for vote in shown if (seen := _seen_by(name, vote))]) for name in kept}
    return Standings(
        names=tuple(sorted(kept, key=lambda name: (-(overall[name].rate or 0.0), name))),
        cells=_cells(shown),
        overall=overall,
        ranking=rank(games),
        with_ridge=rank(games, ridge=RIDGE),
        num_votes=len(votes),
        num_undecided=sum(vote.result is None for vote in votes),
        num_names_left_out=len(met) - len(kept),
    )


Seen = tuple[float | None, Hashable]  # a result from one side's view, and its cluster


def _seen_by(name: str, vote: Vote) -> Seen | None:
    if name == vote.left:
        return vote.result, vote.cluster
    if name == vote.right:
        return None if vote.result is None else 1 - vote.result, vote.cluster
    return None


def _cells(votes: Sequence[Vote]) -> dict[tuple[str, str], WinRate]:
    pairs: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for vote in votes:
        for name, other in ((vote.left, vote.right), (vote.right, vote.left)):
            seen = _seen_by(name, vote)
            assert seen is not None
            pairs[name, other].append(seen)
    return {pair: _rate(seen) for pair, seen in pairs.items()}


def _rate(seen: Sequence[Seen]) -> WinRate:
    clusters = [("alone", index) if cluster is None else ("tied", cluster) for index, (_, cluster) in enumerate(seen)]
    return win_rate([result for result, _ in seen], clusters=clusters)
