"""How far reviewers agree: with each other, with the label made of users' signals, and with the tests."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from console.timerange import TimeRange
from evals.models import Score, ScoreStatus
from evals.statistics.agreement import Agreement, cohen_kappa
from feedback.models import Outcome, ReviewResponse
from feedback.triage import TESTS

MOST = 20_000  # answers read; the newest
MIN_ITEMS = 10  # pairs below this are shown with "too few to say"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two raters on the items both rated."""

    first: str
    second: str
    what: str  # what was compared: resolution, or gold
    agreement: Agreement

    @property
    def is_few(self) -> bool:
        return self.agreement.n < MIN_ITEMS


@dataclass(frozen=True, kw_only=True, slots=True)
class Reviewer:
    name: str
    num_answers: int
    num_late: int
    num_gold: int
    by_resolution: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    reviewers: list[Reviewer]
    people: list[Pair]  # people with each other
    sources: list[Pair]  # people's gold labels with the signals' label and with the tests
    is_capped: bool


def quality(time_range: TimeRange) -> Quality:
    """Answers of the range that stand. One answer for each person and turn: the newest."""
    rows = list(
        ReviewResponse.objects.filter(time_range.within("at"), withdrawn_at__isnull=True)
        .order_by("-at", "-id")
        .values_list("reviewer", "flag__turn__turn_id", "flag__turn__outcome", "resolution", "gold", "is_late")[:MOST]
    )
    said: dict[tuple[str, str], tuple[str, str | None]] = {}
    outcomes: dict[str, str | None] = {}
    for reviewer, turn, outcome, resolution, gold, _ in rows:
        said.setdefault((reviewer, turn), (resolution, gold))
        outcomes[turn] = outcome
    return Quality(
        reviewers=_reviewers(rows),
        people=_people(said),
        sources=_sources(said, outcomes),
        is_capped=len(rows) == MOST,
    )


def _reviewers(rows: list[tuple[str, str, str | None, str, str | None, bool]]) -> list[Reviewer]:
    by_name = defaultdict(list)
    for row in rows:
        by_name[row[0]].append(row)
    return [
        Reviewer(
            name=name,
            num_answers=len(mine),
            num_late=sum(row[5] for row in mine),
            num_gold=sum(row[4] is not None for row in mine),
            by_resolution={kind: sum(row[3] == kind for row in mine) for kind in ("fine", "excluded", "overridden")},
        )
        for name, mine in sorted(by_name.items(), key=lambda pair: -len(pair[1]))
    ]


def _people(said: dict[tuple[str, str], tuple[str, str | None]]) -> list[Pair]:
    by_person: dict[str, dict[str, tuple[str, str | None]]] = defaultdict(dict)
    for (reviewer, turn), word in said.items():
        by_person[reviewer][turn] = word
    pairs = []
    for first, second in combinations(sorted(by_person), 2):
        shared = sorted(by_person[first].keys() & by_person[second].keys())
        for place, what in enumerate(("resolution", "gold")):
            ratings = [(by_person[first][turn][place], by_person[second][turn][place]) for turn in shared]
            pair = _pair(first, second, what, [(a, b) for a, b in ratings if a is not None and b is not None])
            pairs += [pair] if pair else []
    return pairs


def _sources(said: dict[tuple[str, str], tuple[str, str | None]], outcomes: dict[str, str | None]) -> list[Pair]:
    """Every person's gold label against what is known of its turn; unknown on either side is left out."""
    gold = [(turn, word[1]) for (_, turn), word in said.items() if word[1] is not None]
    decided = (Outcome.ACCEPT, Outcome.REJECT)
    users = [(word, outcomes[turn]) for turn, word in gold if outcomes[turn] in decided]
    tests = {
        turn: "accept" if value >= 0.5 else "reject"
        for turn, value in Score.objects.filter(
            turn_ref__in=[turn for turn, _ in gold], scorer=TESTS, status=ScoreStatus.SCORED
        ).values_list("turn_ref", "value")
    }
    tested = [(word, tests[turn]) for turn, word in gold if turn in tests]
    pairs = [
        _pair("people", "users' signals", "gold", users),
        _pair("people", "unit tests", "gold", tested),
    ]
    return [pair for pair in pairs if pair is not None]


def _pair(first: str, second: str, what: str, ratings: Sequence[tuple[Hashable, Hashable]]) -> Pair | None:
    if not ratings:
        return None
    left, right = zip(*ratings, strict=True)
    return Pair(first=first, second=second, what=what, agreement=cohen_kappa(left, right))
