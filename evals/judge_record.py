"""What each judge version has said so far, and what that says about the judge. Inside a tenant.

Bounded by time and by number; the number of queries does not grow with the judges or what they said.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import connection
from django.db.models import Avg, Count, Max, Q, QuerySet
from django.db.models.functions import MD5, Length

from evals.judging.anchors import Drift, drift, is_pair
from evals.judging.bias import (
    LengthBias,
    SelfPreference,
    length_bias_of_marks,
    length_bias_of_pairs,
    self_preference_of_marks,
    self_preference_of_pairs,
)
from evals.judging.canaries import Standing
from evals.judging.gold import GoldRecord, gold_record, is_good
from evals.judging.pairwise import PairVerdict
from evals.judging.trust import Trust, trust_in, verdict_of_tests
from evals.models import (
    AnchorRun,
    CanaryRun,
    Comparison,
    GoldLabel,
    JudgeCall,
    JudgeVersion,
    LiveRating,
    RatingState,
    RunState,
    Score,
    ScoreStatus,
    Subject,
    VerdictKind,
)
from evals.services.canaries import standings
from evals.statistics.agreement import Agreement
from evals.statistics.proportions import Share, wilson
from registry.errors import NotFound
from registry.tenancy import current_project_id

BY_JUDGE, BY_PERSON = "judge", "person"
MAX_JUDGEMENTS = 20_000  # newest, of all judges asked about together, that agreement is computed from
Rated = list[tuple[PairVerdict, PairVerdict | None]]
RESULTS = {PairVerdict.LEFT: 1.0, PairVerdict.RIGHT: 0.0, PairVerdict.TIE: 0.5, PairVerdict.BOTH_BAD: 0.5}
MIRRORED = {PairVerdict.LEFT: PairVerdict.RIGHT, PairVerdict.RIGHT: PairVerdict.LEFT}


@dataclass(frozen=True, kw_only=True)
class JudgeRecord:
    """One version of a judge over a span of time."""

    judge: JudgeVersion
    verdicts: Mapping[str, int]  # of judgements: left, right, tie, both_bad, invalid, error
    num_calls: int
    consistent: Share  # judgements whose two orders agree, of those decided in both
    first_slot: Share  # replies that preferred the answer shown first, of those that preferred one
    unparsable: Share  # replies without a verdict that could be read, of all replies
    failed: Share  # requests without a reply, of all requests
    beside_tests: Agreement
    beside_people: Agreement  # with what people said about the same two answers, the gold set
    num_priced: int  # judgements all of whose replies have a cost
    num_unpriced: int
    cost_usd: Decimal  # of the priced ones
    latency_ms: float | None  # mean of a reply
    standing: Standing
    canaries: CanaryRun | None  # the newest
    last_at: datetime | None
    ratings: Mapping[str, int]  # of live turns and sessions, current ones: waiting, scored, invalid, error, skipped
    length: LengthBias
    own: SelfPreference
    gold: GoldRecord  # marks beside people's labels; of a pairwise judge the left's win rate beside people's votes
    drift: Drift | None  # from the first run on the anchors of the newest to that; None: not run twice
    anchors: AnchorRun | None  # the newest finished run

    @property
    def num_judgements(self) -> int:
        """Had, or tried to be had: what waits or was skipped is no judgement."""
        rated = sum(n for state, n in self.ratings.items() if state not in (RatingState.WAITING, RatingState.SKIPPED))
        return sum(self.verdicts.values()) + rated

    @property
    def num_blocked(self) -> int:
        """Judgements that could not be had; they can be asked for again."""
        return self.verdicts.get(VerdictKind.ERROR, 0) + self.ratings.get(RatingState.ERROR, 0)

    @property
    def cost_per_judgement(self) -> Decimal | None:
        return self.cost_usd / self.num_priced if self.num_priced else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Marked:
    """A current rating that has a mark."""

    subject: str
    ref: str
    value: float
    num_chars: int
    rated: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Calls:
    num_calls: int = 0
    num_invalid: int = 0
    num_errors: int = 0
    num_first: int = 0
    num_sided: int = 0
    latency_ms: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Judgements:
    num_both: int = 0
    num_consistent: int = 0
    num_priced: int = 0
    num_unpriced: int = 0
    cost_usd: Decimal = Decimal(0)


def judge_versions(*, limit: int = 50) -> list[JudgeVersion]:
    """Newest first."""
    return list(JudgeVersion.objects.order_by("-created_at", "-id")[:limit])


def find_judge(judge_id: int) -> JudgeVersion:
    """Raises NotFound."""
    judge = JudgeVersion.objects.filter(pk=judge_id).first()
    if judge is None:
        raise NotFound("no such judge")
    return judge


def records(judges: Sequence[JudgeVersion], *, since: datetime, until: datetime) -> list[JudgeRecord]:
    """One for each judge, in the order given."""
    ids = [judge.pk for judge in judges]
    calls, judgements = _calls(ids, since, until), _judgements(ids, since, until)
    seen = _seen(ids, since, until)
    stand, runs, verdicts = standings(judges), _canary_runs(ids), _verdicts(ids, since, until)
    ratings, drifts = _rating_states(ids, since, until), _drifts(ids)
    return [
        _record(
            judge,
            calls.get(judge.pk, _Calls()),
            judgements.get(judge.pk, _Judgements()),
            verdicts=verdicts.get(judge.pk, {}),
            seen=seen[judge.pk],
            standing=stand.get(judge.pk, Standing.NOT_RUN),
            canaries=runs.get(judge.pk),
            ratings=ratings.get(judge.pk, {}),
            anchors=drifts.get(judge.pk, (None, None)),
        )
        for judge in judges
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """All that one judge said in a time, beside what others said about the same."""

    comparisons: Sequence[Comparison]
    marks: Sequence[_Marked]
    tests: Rated
    people: Rated
    voted: set[int]  # keys of the comparisons that a person voted on too
    gold: Mapping[tuple[str, str], float]  # (subject, ref) -> mean of people's labels


def _seen(ids: list[int], since: datetime | None, until: datetime | None) -> dict[int, _Seen]:
    """For every judge. A fixed number of queries."""
    comparisons, marks = _comparisons(ids, since, until), _marks(ids, since, until)
    tests, people, voted = beside_tests(comparisons), beside_people(comparisons), voted_on(comparisons)
    refs = {(one.subject, one.ref) for found in marks.values() for one in found}
    gold, tested = _gold_labels(refs), _tested_turns([ref for subject, ref in refs if subject == Subject.TURN])
    of: dict[int, list[Comparison]] = defaultdict(list)
    for one in comparisons:
        of[_id(one)].append(one)
    return {
        judge: _Seen(
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


def _record(
    judge: JudgeVersion,
    calls: _Calls,
    judgements: _Judgements,
    *,
    verdicts: Mapping[str, tuple[int, datetime]],
    seen: _Seen,
    standing: Standing,
    canaries: CanaryRun | None,
    ratings: Mapping[str, tuple[int, datetime]],
    anchors: tuple[Drift | None, AnchorRun | None],
) -> JudgeRecord:
    trust = trust_in(seen.tests, people=_people(seen, anchors[1]))
    return JudgeRecord(
        judge=judge,
        verdicts={verdict: n for verdict, (n, _) in verdicts.items()},
        num_calls=calls.num_calls,
        consistent=wilson(judgements.num_consistent, judgements.num_both),
        first_slot=wilson(calls.num_first, calls.num_sided),
        unparsable=wilson(calls.num_invalid, calls.num_calls - calls.num_errors),
        failed=wilson(calls.num_errors, calls.num_calls),
        beside_tests=trust.agreement,
        beside_people=trust.with_people,
        num_priced=judgements.num_priced,
        num_unpriced=judgements.num_unpriced,
        cost_usd=judgements.cost_usd,
        latency_ms=calls.latency_ms,
        standing=standing,
        canaries=canaries,
        last_at=max((at for _, at in (*verdicts.values(), *ratings.values())), default=None),
        ratings={state: n for state, (n, _) in ratings.items()},
        length=_length_bias(judge, seen),
        own=_self_preference(judge, seen),
        gold=_gold_record(judge, seen, gold_of(anchors[1])),
        drift=anchors[0],
        anchors=anchors[1],
    )


def _length_bias(judge: JudgeVersion, seen: _Seen) -> LengthBias:
    if not judge.is_pairwise:
        return length_bias_of_marks([one.num_chars for one in seen.marks], [one.value for one in seen.marks])
    decided = [(one, result) for one in seen.comparisons if (result := _result(one.verdict)) is not None]
    lengths = [(one.left_chars, one.right_chars) for one, _ in decided]
    return length_bias_of_pairs(lengths, [result for _, result in decided])


def _self_preference(judge: JudgeVersion, seen: _Seen) -> SelfPreference:
    if not judge.is_pairwise:
        return self_preference_of_marks(
            judge.model, [one.rated for one in seen.marks], [one.value for one in seen.marks]
        )  # fmt: skip
    tests = seen.tests[: len(seen.comparisons)]  # in the order of the comparisons
    found = [
        (one, result, None if tested is None else RESULTS.get(tested))
        for one, (_, tested) in zip(seen.comparisons, tests, strict=True)
        if (result := _result(one.verdict)) is not None
    ]
    return self_preference_of_pairs(
        judge.model,
        [(one.left, one.right) for one, _, _ in found],
        [result for _, result, _ in found],
        [tested for _, _, tested in found],
    )


def _gold_record(judge: JudgeVersion, seen: _Seen, anchors: Sequence[tuple[float, float]]) -> GoldRecord:
    """Of a pairwise judge: what it and people make of the left side; pairs nobody voted on are the unlabelled ones."""
    if not judge.is_pairwise:
        labelled = [one for one in seen.marks if (one.subject, one.ref) in seen.gold]
        return gold_record(
            [seen.gold[one.subject, one.ref] for one in labelled],
            [one.value for one in labelled],
            [one.value for one in seen.marks if (one.subject, one.ref) not in seen.gold],
            anchors=anchors,
        )
    by_person = [
        (RESULTS[said], RESULTS[vote]) for said, vote in seen.people if said in RESULTS and vote in RESULTS
    ]  # fmt: skip
    alone = [one for one in seen.comparisons if one.pk not in seen.voted]
    rest = [result for one in alone if (result := _result(one.verdict)) is not None]
    return gold_record(
        [vote for _, vote in by_person], [said for said, _ in by_person], rest, anchors=anchors, is_pairwise=True
    )


def _result(verdict: str) -> float | None:
    return RESULTS.get(PairVerdict(verdict))


def _marks(ids: list[int], since: datetime | None, until: datetime | None) -> dict[int, list[_Marked]]:
    """The newest current ratings with a mark. One query."""
    scored = _ratings(ids, since, until).filter(state=RatingState.SCORED).order_by("-created_at", "-id")
    columns = ("judge_id", "subject", "subject_ref", "value", "num_chars", "rated")
    found: dict[int, list[_Marked]] = defaultdict(list)
    for judge, subject, ref, value, num_chars, rated in scored.values_list(*columns)[:MAX_JUDGEMENTS]:
        assert value is not None, "the database refuses a scored rating without a value"
        found[judge].append(_Marked(subject=subject, ref=ref, value=value, num_chars=num_chars, rated=rated))
    return found


def _ratings(ids: list[int], since: datetime | None, until: datetime | None) -> QuerySet[LiveRating]:
    current = LiveRating.objects.filter(judge_id__in=ids, superseded_at=None)
    if since is not None:
        current = current.filter(created_at__gte=since)
    return current if until is None else current.filter(created_at__lt=until)


def _rating_states(ids: list[int], since: datetime, until: datetime) -> dict[int, dict[str, tuple[int, datetime]]]:
    """Judge -> state -> how many current ratings, and when the last one was opened."""
    found: dict[int, dict[str, tuple[int, datetime]]] = defaultdict(dict)
    rows = _ratings(ids, since, until).values_list("judge_id", "state").annotate(n=Count("id"), at=Max("created_at"))
    for judge, state, n, at in rows:
        found[judge][state] = (n, at)
    return found


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


def _drifts(ids: Sequence[int]) -> dict[int, tuple[Drift | None, AnchorRun | None]]:
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


def _people(seen: _Seen, run: AnchorRun | None) -> Rated:
    says = _as_side if run is not None and is_pair(run.anchors.items[0]) else _as_verdict
    return seen.people + [(says(value), says(gold)) for gold, value in gold_of(run)]


def _as_side(value: float) -> PairVerdict:
    return PairVerdict.TIE if value == 0.5 else PairVerdict.LEFT if value > 0.5 else PairVerdict.RIGHT


def values_of(run: AnchorRun) -> dict[str, float | None]:
    """Key of the item -> value in [0, 1], None without one."""
    return {key: result["value"] for key, result in run.results.items()}


def _calls(ids: list[int], since: datetime, until: datetime) -> dict[int, _Calls]:
    is_first = Q(order="lr", verdict="left") | Q(order="rl", verdict="right")
    rows = (
        JudgeCall.objects.filter(judge_id__in=ids, created_at__gte=since, created_at__lt=until, is_cached=False)
        .values("judge_id")
        .annotate(
            num_calls=Count("id"),
            num_invalid=Count("id", filter=Q(verdict=VerdictKind.INVALID)),
            num_errors=Count("id", filter=Q(verdict=VerdictKind.ERROR)),
            num_first=Count("id", filter=is_first),
            num_sided=Count("id", filter=Q(verdict__in=("left", "right"))),
            latency_ms=Avg("latency_ms"),
        )
    )
    return {row.pop("judge_id"): _Calls(**row) for row in rows}


def _judgements(ids: list[int], since: datetime, until: datetime) -> dict[int, _Judgements]:
    """Per judgement first: whether its last words in both orders agree, and what all its replies cost."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT judge_id, count(*) FILTER (WHERE lr <> '' AND rl <> ''),
                   count(*) FILTER (WHERE lr <> '' AND lr = rl),
                   count(*) FILTER (WHERE unpriced = 0 AND replies > 0), count(*) FILTER (WHERE unpriced > 0),
                   coalesce(sum(cost) FILTER (WHERE unpriced = 0), 0)
            FROM (
              SELECT judge_id, comparison_id, rating_id, sum(cost_usd) AS cost,
                count(*) FILTER (WHERE verdict <> 'error' AND NOT is_cached) AS replies,
                count(*) FILTER (WHERE verdict <> 'error' AND cost_usd IS NULL AND NOT is_cached) AS unpriced,
                coalesce((array_agg(verdict ORDER BY id DESC)
                  FILTER (WHERE "order" = 'lr' AND verdict NOT IN ('invalid', 'error')))[1], '') AS lr,
                coalesce((array_agg(verdict ORDER BY id DESC)
                  FILTER (WHERE "order" = 'rl' AND verdict NOT IN ('invalid', 'error')))[1], '') AS rl
              FROM evals_judgecall
              WHERE project_id = %s AND judge_id = ANY(%s) AND created_at >= %s AND created_at < %s
                AND anchor_run_id IS NULL
              GROUP BY judge_id, comparison_id, rating_id) judged
            GROUP BY judge_id
            """,
            [current_project_id(), ids, since, until],
        )
        return {
            row[0]: _Judgements(
                num_both=row[1], num_consistent=row[2], num_priced=row[3], num_unpriced=row[4], cost_usd=row[5]
            )
            for row in cursor.fetchall()
        }


def _verdicts(ids: list[int], since: datetime, until: datetime) -> dict[int, dict[str, tuple[int, datetime]]]:
    """Judge -> verdict -> how many judgements, and when the last one was."""
    found: dict[int, dict[str, tuple[int, datetime]]] = defaultdict(dict)
    rows = _judged(ids, since, until).values_list("judge_id", "verdict").annotate(n=Count("id"), at=Max("created_at"))
    for judge_id, verdict, n, at in rows:
        found[judge_id][verdict] = (n, at)
    return found


def _comparisons(ids: list[int], since: datetime | None, until: datetime | None) -> list[Comparison]:
    judged = _judged(ids, since, until).filter(problem__isnull=False)
    newest = judged.annotate(left_chars=Length("left_text"), right_chars=Length("right_text"))
    return list(newest.defer("left_text", "right_text", "raw").order_by("-created_at", "-id")[:MAX_JUDGEMENTS])


def _judged(ids: Sequence[int], since: datetime | None, until: datetime | None) -> QuerySet[Comparison]:
    judged = Comparison.objects.filter(judge_id__in=ids, by=BY_JUDGE)
    if since is not None:
        judged = judged.filter(created_at__gte=since)
    return judged if until is None else judged.filter(created_at__lt=until)


def trusts(judges: Sequence[JudgeVersion]) -> dict[int, Trust]:
    """Whether each has a vote, by the newest of all they ever said: what the gate goes by. Queries do not grow."""
    ids = [judge.pk for judge in judges]
    seen, stand, drifts = _seen(ids, None, None), standings(judges), _drifts(ids)
    return {
        key: trust_in(
            seen[key].tests,
            people=_people(seen[key], drifts.get(key, (None, None))[1]),
            canaries=stand.get(key, Standing.NOT_RUN),
            is_unstable=(moved := drifts.get(key, (None, None))[0]) is not None and moved.is_unstable,
        )
        for key in ids
    }


def paused_judges(judges: Iterable[JudgeVersion]) -> set[int]:
    """Those that must not count for rewards and gates."""
    return {key for key, trust in trusts(list(judges)).items() if trust.is_paused}


def paused_scorers() -> set[tuple[str, str]]:
    """(scorer, version) of Scores that paused judges gave to turns: not to be learnt from."""
    marking = JudgeVersion.objects.exclude(protocol="pairwise")
    names = dict(marking.values_list("pk", "name"))
    return {(f"judge:{names[key]}", str(key)) for key in paused_judges(marking)} if names else set()


def judgements_of(judge: JudgeVersion) -> list[Comparison]:
    """The newest of all this judge ever said about problems."""
    return _comparisons([judge.pk], None, None)


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
        found[_id(one)].append((PairVerdict(one.verdict), verdict_of_tests(left, right)))
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
        found[_id(one)] += [(PairVerdict(one.verdict), vote) for vote in said_by_people if vote.is_decided]
    return found


def voted_on(comparisons: Sequence[Comparison]) -> set[int]:
    """Keys of those that a person has voted on too. One query."""
    rows = Comparison.objects.filter(by=BY_PERSON, problem_id__in={one.problem_id for one in comparisons})
    votes = rows.values_list("problem_id", "left", "right")[:MAX_JUDGEMENTS]
    voted = {(problem, frozenset((left, right))) for problem, left, right in votes}
    return {one.pk for one in comparisons if (one.problem_id, frozenset((one.left, one.right))) in voted}


def _canary_runs(ids: list[int]) -> dict[int, CanaryRun]:
    newest = CanaryRun.objects.filter(judge_id__in=ids).order_by("judge_id", "-requested_at").distinct("judge_id")
    return {run.judge_id: run for run in newest}


def _id(comparison: Comparison) -> int:
    assert comparison.judge_id is not None, "a judge's comparison names its judge"
    return comparison.judge_id
