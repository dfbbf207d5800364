"""What each judge version has said so far, and what that says about the judge. Inside a tenant.

Bounded by time and by number; the number of queries does not grow with the judges or what they said.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import connection
from django.db.models import Avg, Count, Max, Q, QuerySet
from django.db.models.functions import MD5

from evals.judging.canaries import Standing
from evals.judging.pairwise import PairVerdict
from evals.judging.trust import Trust, trust_in, verdict_of_tests
from evals.models import CanaryRun, Comparison, JudgeCall, JudgeVersion, Score, VerdictKind
from evals.services.canaries import standings
from evals.statistics.agreement import Agreement
from evals.statistics.proportions import Share, wilson
from registry.errors import NotFound
from registry.tenancy import current_project_id

BY_JUDGE, BY_PERSON = "judge", "person"
MAX_JUDGEMENTS = 20_000  # newest, of all judges asked about together, that agreement is computed from
Rated = list[tuple[PairVerdict, PairVerdict | None]]
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

    @property
    def num_judgements(self) -> int:
        return sum(self.verdicts.values())

    @property
    def num_blocked(self) -> int:
        """Judgements that could not be had; they can be asked for again."""
        return self.verdicts.get(VerdictKind.ERROR, 0)

    @property
    def cost_per_judgement(self) -> Decimal | None:
        return self.cost_usd / self.num_priced if self.num_priced else None


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
    comparisons = _comparisons(ids, since, until)
    tests, people = beside_tests(comparisons), beside_people(comparisons)
    stand, runs, verdicts = standings(judges), _canary_runs(ids), _verdicts(ids, since, until)
    return [
        _record(
            judge,
            calls.get(judge.pk, _Calls()),
            judgements.get(judge.pk, _Judgements()),
            verdicts=verdicts.get(judge.pk, {}),
            tests=tests.get(judge.pk, []),
            people=people.get(judge.pk, []),
            standing=stand.get(judge.pk, Standing.NOT_RUN),
            canaries=runs.get(judge.pk),
        )
        for judge in judges
    ]


def _record(
    judge: JudgeVersion,
    calls: _Calls,
    judgements: _Judgements,
    *,
    verdicts: Mapping[str, tuple[int, datetime]],
    tests: Rated,
    people: Rated,
    standing: Standing,
    canaries: CanaryRun | None,
) -> JudgeRecord:
    return JudgeRecord(
        judge=judge,
        verdicts={verdict: n for verdict, (n, _) in verdicts.items()},
        num_calls=calls.num_calls,
        consistent=wilson(judgements.num_consistent, judgements.num_both),
        first_slot=wilson(calls.num_first, calls.num_sided),
        unparsable=wilson(calls.num_invalid, calls.num_calls - calls.num_errors),
        failed=wilson(calls.num_errors, calls.num_calls),
        beside_tests=trust_in(tests).agreement,
        beside_people=trust_in(people).agreement,
        num_priced=judgements.num_priced,
        num_unpriced=judgements.num_unpriced,
        cost_usd=judgements.cost_usd,
        latency_ms=calls.latency_ms,
        standing=standing,
        canaries=canaries,
        last_at=max((at for _, at in verdicts.values()), default=None),
    )


def _calls(ids: list[int], since: datetime, until: datetime) -> dict[int, _Calls]:
    is_first = Q(order="lr", verdict="left") | Q(order="rl", verdict="right")
    rows = (
        JudgeCall.objects.filter(judge_id__in=ids, created_at__gte=since, created_at__lt=until)
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
              SELECT judge_id, comparison_id, sum(cost_usd) AS cost,
                count(*) FILTER (WHERE verdict <> 'error') AS replies,
                count(*) FILTER (WHERE verdict <> 'error' AND cost_usd IS NULL) AS unpriced,
                coalesce((array_agg(verdict ORDER BY id DESC)
                  FILTER (WHERE "order" = 'lr' AND verdict NOT IN ('invalid', 'error')))[1], '') AS lr,
                coalesce((array_agg(verdict ORDER BY id DESC)
                  FILTER (WHERE "order" = 'rl' AND verdict NOT IN ('invalid', 'error')))[1], '') AS rl
              FROM evals_judgecall
              WHERE project_id = %s AND judge_id = ANY(%s) AND created_at >= %s AND created_at < %s
              GROUP BY judge_id, comparison_id) judged
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
    return list(judged.defer("left_text", "right_text").order_by("-created_at", "-id")[:MAX_JUDGEMENTS])


def _judged(ids: Sequence[int], since: datetime | None, until: datetime | None) -> QuerySet[Comparison]:
    judged = Comparison.objects.filter(judge_id__in=ids, by=BY_JUDGE)
    if since is not None:
        judged = judged.filter(created_at__gte=since)
    return judged if until is None else judged.filter(created_at__lt=until)


def trusts(judges: Sequence[JudgeVersion]) -> dict[int, Trust]:
    """Whether each has a vote, by the newest of all they ever said: what the gate goes by. Four queries."""
    beside, stand = beside_tests(_comparisons([judge.pk for judge in judges], None, None)), standings(judges)
    return {
        judge.pk: trust_in(beside.get(judge.pk, []), canaries=stand.get(judge.pk, Standing.NOT_RUN)) for judge in judges
    }


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


def _canary_runs(ids: list[int]) -> dict[int, CanaryRun]:
    newest = CanaryRun.objects.filter(judge_id__in=ids).order_by("judge_id", "-requested_at").distinct("judge_id")
    return {run.judge_id: run for run in newest}


def _id(comparison: Comparison) -> int:
    assert comparison.judge_id is not None, "a judge's comparison names its judge"
    return comparison.judge_id
