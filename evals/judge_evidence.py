"""What judges said, beside what the tests, people and anchors say of the same. Inside a tenant.

Bounded by time and by number; the number of queries does not grow with the judges or what they said.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet
from django.db.models.functions import MD5, Length

from evals.judging.anchors import Drift, drift, is_pair
from evals.judging.gold import is_good
from evals.judging.pairwise import PairVerdict
from evals.judging.trust import verdict_of_tests
from evals.models import (
    AnchorRun,
    Comparison,
    GoldLabel,
    LiveRating,
    RatingState,
    RunState,
    Score,
    ScoreStatus,
    Subject,
)

BY_JUDGE, BY_PERSON = "judge", "person"
MAX_JUDGEMENTS = 20_000  # newest, of all judges asked about together, that agreement is computed from
Rated = list[tuple[PairVerdict, PairVerdict | None]]
RESULTS = {PairVerdict.LEFT: 1.0, PairVerdict.RIGHT: 0.0, PairVerdict.TIE: 0.5, PairVerdict.BOTH_BAD: 0.5}
MIRRORED = {PairVerdict.LEFT: PairVerdict.RIGHT, PairVerdict.RIGHT: PairVerdict.LEFT}


@dataclass(frozen=True, kw_only=True, slots=True)
class Marked:
    """A current rating that has a mark."""

    subject: str
    ref: str
    value: float
    num_chars: int
    rated: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """All that one judge said in a time, beside what others said about the same."""

    comparisons: Sequence[Comparison]
    marks: Sequence[Marked]
    tests: Rated
    people: Rated
    voted: set[int]  # keys of the comparisons that a person voted on too
    gold: Mapping[tuple[str, str], float]  # (subject, ref) -> mean of people's labels


def seen_by(ids: list[int], since: datetime | None, until: datetime | None) -> dict[int, Seen]:
    """For every judge. A fixed number of queries."""
    comparisons, marks = newest_comparisons(ids, since, until), marks_of(ids, since, until)
    tests, people, voted = beside_tests(comparisons), beside_people(comparisons), voted_on(comparisons)
    refs = {(one.subject, one.ref) for found in marks.values() for one in found}
    gold, tested = _gold_labels(refs), _tested_turns([ref for subject, ref in refs if subject == Subject.TURN])
    of: dict[int, list[Comparison]] = defaultdict(list)
    for one in comparisons:
        of[judge_id_of(one)].append(one)
    return {
        judge: Seen(
            comparisons=of.get(judge, []),
            marks=marks.get(judge, []),
            tests=tests.get(judge, []) + [
                (_as_verdict(one.value), _as_verdict(tested[one.ref]))
                for one in marks.get(judge, [])
                if one.subject == Subject.TURN and one.ref in tested
            ],
            people=people.get(judge, []) + [
                (_as_verdict(one.value), _as_verdict(gold[one.subject, one.ref]))
                for one in marks.get(judge, [])
                if (one.subject, one.ref) in gold
            ],
            voted=voted,
            gold=gold,
        )
        for judge in ids
    }  # fmt: skip


def _as_verdict(value: float) -> PairVerdict:
    """Good is one side and not good the other, so that agreement is counted as for pairs."""
    return PairVerdict.LEFT if is_good(value) else PairVerdict.RIGHT


def marks_of(ids: list[int], since: datetime | None, until: datetime | None) -> dict[int, list[Marked]]:
    """The newest current ratings with a mark. One query."""
    scored = current_ratings(ids, since, until).filter(state=RatingState.SCORED).order_by("-created_at", "-id")
    columns = ("judge_id", "subject", "subject_ref", "value", "num_chars", "rated")
    found: dict[int, list[Marked]] = defaultdict(list)
    for judge, subject, ref, value, num_chars, rated in scored.values_list(*columns)[:MAX_JUDGEMENTS]:
        assert value is not None, "the database refuses a scored rating without a value"
        found[judge].append(Marked(subject=subject, ref=ref, value=value, num_chars=num_chars, rated=rated))
    return found


def current_ratings(ids: list[int], since: datetime | None, until: datetime | None) -> QuerySet[LiveRating]:
    current = LiveRating.objects.filter(judge_id__in=ids, superseded_at=None)
    if since is not None:
        current = current.filter(created_at__gte=since)
    return current if until is None else current.filter(created_at__lt=until)


def _gold_labels(refs: set[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Mean over the people who labelled it."""
    said: dict[tuple[str, str], list[float]] = defaultdict(list)
    rows = GoldLabel.objects.filter(subject_ref__in={ref for _, ref in refs})
    for subject, ref, value in rows.values_list("subject", "subject_ref", "value"):
        said[subject, ref].append(value)
    return {key: sum(values) / len(values) for key, values in said.items() if key in refs}


def _tested_turns(refs: Sequence[str]) -> dict[str, float]:
    """Turn -> what its unit tests say."""
    scored = Score.objects.filter(turn_ref__in=refs, scorer="unit_tests", status=ScoreStatus.SCORED)
    return {ref: value for ref, value in scored.values_list("turn_ref", "value") if value is not None}


def newest_comparisons(ids: list[int], since: datetime | None, until: datetime | None) -> list[Comparison]:
    judged = judged_by(ids, since, until).filter(problem__isnull=False)
    newest = judged.annotate(left_chars=Length("left_text"), right_chars=Length("right_text"))
    return list(newest.defer("left_text", "right_text", "raw").order_by("-created_at", "-id")[:MAX_JUDGEMENTS])


def judged_by(ids: Sequence[int], since: datetime | None, until: datetime | None) -> QuerySet[Comparison]:
    judged = Comparison.objects.filter(judge_id__in=ids, by=BY_JUDGE)
    if since is not None:
        judged = judged.filter(created_at__gte=since)
    return judged if until is None else judged.filter(created_at__lt=until)


def beside_tests(comparisons: Sequence[Comparison]) -> dict[int, Rated]:
    """Judge -> (its verdict, that of the unit tests of the very answers it saw) for every judgement. Two queries.

    A side may have been run more than once: a score counts only where its output is the text that was judged.
    """
    names = {name for one in comparisons for name in (one.left, one.right)}
    rows = Score.objects.filter(
        Q(run__checkpoint__in=names) | Q(run__model__in=names),
        scorer="unit_tests",
        repeat=0,
        problem_id__in={one.problem_id for one in comparisons},
    ).annotate(text=MD5("output"))
    columns = ("run__checkpoint", "run__model", "problem_id", "text", "value")
    values = {
        (checkpoint or model, problem, text): value
        for checkpoint, model, problem, text, value in rows.order_by("run__started_at").values_list(*columns)
    }
    texts = {
        pk: (left, right)
        for pk, left, right in Comparison.objects.filter(pk__in=[one.pk for one in comparisons]).values_list(
            "pk", MD5("left_text"), MD5("right_text")
        )
    }
    found: dict[int, Rated] = defaultdict(list)
    for one in comparisons:
        left_text, right_text = texts.get(one.pk, ("", ""))  # deleted since: matches nothing
        left = values.get((one.left, one.problem_id, left_text))
        right = values.get((one.right, one.problem_id, right_text))
        found[judge_id_of(one)].append((PairVerdict(one.verdict), verdict_of_tests(left, right)))
    return found


def beside_people(comparisons: Sequence[Comparison]) -> dict[int, Rated]:
    """Judge -> (its verdict, that of a person) for every vote on the same problem and the same two sides. One query."""
    votes: dict[tuple[int | None, str, str], list[PairVerdict]] = defaultdict(list)
    rows = Comparison.objects.filter(by=BY_PERSON, problem_id__in={one.problem_id for one in comparisons})
    rows = rows.order_by("-created_at", "-id")
    for problem, left, right, said in rows.values_list("problem_id", "left", "right", "verdict")[:MAX_JUDGEMENTS]:
        verdict = PairVerdict(said)
        votes[problem, left, right].append(verdict)
        votes[problem, right, left].append(MIRRORED.get(verdict, verdict))
    found: dict[int, Rated] = defaultdict(list)
    for one in comparisons:
        said_by_people = votes.get((one.problem_id, one.left, one.right), [])
        found[judge_id_of(one)] += [(PairVerdict(one.verdict), vote) for vote in said_by_people if vote.is_decided]
    return found


def voted_on(comparisons: Sequence[Comparison]) -> set[int]:
    """Keys of those that a person has voted on too. One query."""
    rows = Comparison.objects.filter(by=BY_PERSON, problem_id__in={one.problem_id for one in comparisons})
    votes = rows.values_list("problem_id", "left", "right")[:MAX_JUDGEMENTS]
    voted = {(problem, frozenset((left, right))) for problem, left, right in votes}
    return {one.pk for one in comparisons if (one.problem_id, frozenset((one.left, one.right))) in voted}


def drifts_of(ids: Sequence[int]) -> dict[int, tuple[Drift | None, AnchorRun | None]]:
    """Judge -> (from its first run on the anchors of the newest one, the newest one). Two queries."""
    done = AnchorRun.objects.filter(judge_id__in=ids, state=RunState.DONE).select_related("anchors")
    newest = {run.judge_id: run for run in done.order_by("judge_id", "-requested_at").distinct("judge_id")}
    pairs = done.filter(anchors_id__in={run.anchors_id for run in newest.values()})
    first = {
        (run.judge_id, run.anchors_id): run
        for run in pairs.order_by("judge_id", "anchors_id", "requested_at").distinct("judge_id", "anchors_id")
    }
    found: dict[int, tuple[Drift | None, AnchorRun | None]] = {}
    for judge, run in newest.items():
        before = first[judge, run.anchors_id]
        found[judge] = (None if before.pk == run.pk else drift(values_of(before), values_of(run)), run)
    return found


def gold_of(run: AnchorRun | None) -> list[tuple[float, float]]:
    """(people's label, the judge's value) of the anchors that have both."""
    if run is None:
        return []
    values = values_of(run)
    found = ((item.get("gold"), values.get(item["key"])) for item in run.anchors.items)
    return [(gold, value) for gold, value in found if gold is not None and value is not None]


def beside_people_and_gold(seen: Seen, run: AnchorRun | None) -> Rated:
    says = _as_side if run is not None and is_pair(run.anchors.items[0]) else _as_verdict
    return seen.people + [(says(value), says(gold)) for gold, value in gold_of(run)]


def _as_side(value: float) -> PairVerdict:
    return PairVerdict.TIE if value == 0.5 else PairVerdict.LEFT if value > 0.5 else PairVerdict.RIGHT


def values_of(run: AnchorRun) -> dict[str, float | None]:
    """Key of the item -> value in [0, 1], None without one."""
    return {key: result["value"] for key, result in run.results.items()}


def result_of(verdict: str) -> float | None:
    return RESULTS.get(PairVerdict(verdict))


def judge_id_of(comparison: Comparison) -> int:
    assert comparison.judge_id is not None, "a judge's comparison names its judge"
    return comparison.judge_id
