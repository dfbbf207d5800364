"""What imported comparisons come to: who beats whom, strengths, style and agreement, computed once by a worker.

A page must not read a million votes, so it reads what the job left. The job runs when an import has changed something;
what a judge's or a file's comparisons are is told by their number and the newest of them, and what has not changed is
not computed again. Inside a tenant, unless said otherwise.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, F, Func, IntegerField, Max, Q, QuerySet, Value
from django.db.models.functions import Length

from evals.controlled import LENGTH, AtEqualLength, StyleControlled, StyledVote, at_equal_length, without_style
from evals.models import Benchmark, Comparison, ImportedStandings, RaterAgreement
from evals.rater_agreement import Agreed, Said, agreed, agreed_among, said_by
from evals.standings import Standings, Vote, result_of, standings
from jobs.services import ClaimedJob, NotYet, enqueue
from registry.tenancy import tenant

STANDINGS_JOB = "evals.imported-standings"
MAX_VOTES = 1_000_000  # newest, of one judge or file
MAX_STYLED = 100_000  # newest, that style and length are taken out of
MAX_AGREED = 5_000  # newest of one rater, that agreement is counted from
MAX_RATERS = 4  # judges of one benchmark, those with most comparisons
MAX_SIDES = 200  # those with most comparisons
WORK_S = 45.0  # of a worker's time at once; the job then goes on anew
PEOPLE = "person"
MARKS = {
    "headers": r"^#{1,6}\s",
    "lists": r"^\s*(?:\d+\.|[-*+])\s",
    "bold": r"\*\*[^*\n]+\*\*|__[^_\n]+__",
}  # of Markdown, as the Arena counts them
ARENA_COUNTS = {LENGTH: "sum_assistant_{}_tokens", **{name: f"{name[:-1]}_count_{{}}" for name in ("headers", "lists")}}
ARENA_COUNTS["bold"] = "bold_count_{}"
TOKENS, CHARACTERS = "tokens", "characters"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Of one judge, or of one file's people or tests. As JSON in ImportedStandings.result."""

    standings: Standings
    style: StyleControlled | None  # None: the data carry none
    at_equal_length: tuple[AtEqualLength, ...]
    length_unit: str  # tokens or characters; "": no lengths
    is_in_time: bool  # every comparison says when it was made; else drift is in the order of the file
    num_beyond: int  # older than the newest MAX_VOTES: not read
    sets: tuple[UUID, ...]  # the files


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    """Comparisons that belong together, and by what to tell whether they have changed."""

    of: QuerySet[Comparison]
    key: Mapping[str, Any]  # of ImportedStandings
    num_comparisons: int
    newest: int
    num_timed: int
    sets: tuple[UUID, ...]


def request_standings(benchmark: Benchmark) -> None:
    """Have a worker compute what has changed; with the caller's transaction."""
    enqueue(
        STANDINGS_JOB, project_id=benchmark.project_id, payload={"benchmark": benchmark.pk}, key=str(benchmark.pk)
    )  # fmt: skip


def request_all_standings() -> int:
    """For every benchmark with imported comparisons, as after an upgrade; returns how many there are."""
    has_any = Q(comparison_sets__isnull=False) | Q(imported_standings__isnull=False)
    benchmarks = Benchmark.objects.filter(has_any).distinct()
    for benchmark in benchmarks:
        request_standings(benchmark)
    return len(benchmarks)


def standings_job(job: ClaimedJob) -> None:
    """One judge or file after another, each kept as it is done; agreement at the end. Opens its own tenants."""
    assert job.project_id is not None
    started = time.monotonic()
    while todo := _next(job.project_id, job.payload["benchmark"]):
        if time.monotonic() - started > WORK_S:
            raise NotYet(0, "more to compute")
        job.renew()
        with tenant(job.project_id):
            measured = _measured(todo)
            kept = {
                "num_comparisons": todo.num_comparisons,
                "newest": todo.newest,
                "result": msgspec.to_builtins(measured),
            }
            ImportedStandings.objects.update_or_create(**todo.key, defaults=kept)
    with tenant(job.project_id):
        found = _agreements(job.payload["benchmark"])
    with job.effect(), tenant(job.project_id):
        RaterAgreement.objects.filter(benchmark_id=job.payload["benchmark"]).delete()
        RaterAgreement.objects.bulk_create(found)


def measured_of(row: ImportedStandings) -> Measured:
    return msgspec.convert(row.result, Measured)


def agreed_of(row: RaterAgreement) -> Agreed:
    return msgspec.convert(row.result, Agreed)


def _next(project_id: UUID, benchmark: int) -> _Source | None:
    """The first that is not what it was when it was computed; those without a comparison are forgotten."""
    with tenant(project_id):
        rows = ImportedStandings.objects.filter(benchmark_id=benchmark)
        known = {(row.set_id, row.by, row.rater): row for row in rows.defer("result")}
        for source in _sources(benchmark):
            row = known.pop((source.key["set_id"], source.key["by"], source.key["rater"]), None)
            if row is None or (row.num_comparisons, row.newest) != (source.num_comparisons, source.newest):
                return source
        rows.filter(pk__in=[row.pk for row in known.values()]).delete()
        return None


def _sources(benchmark: int) -> Iterator[_Source]:
    imported = Comparison.objects.filter(set__benchmark_id=benchmark)
    facts = {
        "n": Count("id"), "newest": Max("id"), "timed": Count("judged_at"),
        "sets": ArrayAgg("set_id", distinct=True),
    }  # fmt: skip
    for row in imported.filter(by="judge").values("rater").annotate(**facts).order_by("rater"):
        of = imported.filter(by="judge", rater=row["rater"])
        yield _source(of, benchmark, {"set_id": None, "by": "judge", "rater": row["rater"]}, row)
    for row in imported.exclude(by="judge").values("set_id", "by").annotate(**facts).order_by("set_id", "by"):
        of = Comparison.objects.filter(set_id=row["set_id"], by=row["by"])
        yield _source(of, benchmark, {"set_id": row["set_id"], "by": row["by"], "rater": ""}, row)


def _source(of: QuerySet[Comparison], benchmark: int, key: dict[str, Any], facts: Mapping[str, Any]) -> _Source:
    return _Source(
        of=of, key={"benchmark_id": benchmark, **key}, num_comparisons=facts["n"], newest=facts["newest"],
        num_timed=facts["timed"], sets=tuple(facts["sets"]),
    )  # fmt: skip


def _measured(source: _Source) -> Measured:
    styled, unit = _styled(source)
    return Measured(
        standings=standings(_votes(source), max_names=MAX_SIDES),
        style=without_style(styled),
        at_equal_length=tuple(at_equal_length(styled)),
        length_unit=unit,
        is_in_time=source.num_timed == source.num_comparisons,
        num_beyond=max(0, source.num_comparisons - MAX_VOTES),
        sets=source.sets,
    )


def _votes(source: _Source) -> Iterator[Vote]:
    columns = ("left", "right", "verdict", "problem_id", "rater", "repeat")
    rows = _newest(source, MAX_VOTES).order_by(F("judged_at").asc(nulls_first=True), "id").values_list(*columns)
    is_new = _once(source)
    for left, right, verdict, problem, rater, repeat in rows.iterator(chunk_size=10_000):
        if left != right and is_new((problem, left, right, rater, repeat)):
            yield Vote(left=left, right=right, result=result_of(verdict), cluster=problem)


def _newest(source: _Source, limit: int) -> QuerySet[Comparison]:
    if source.num_comparisons <= limit:
        return source.of
    (oldest,) = source.of.order_by("-id").values_list("id", flat=True)[limit - 1 : limit]
    return source.of.filter(id__gte=oldest)


def _once(source: _Source) -> Any:
    """Whether a comparison is met for the first time: two files of one judge may hold the same."""
    if len(source.sets) == 1:
        return lambda key: True
    seen: set[int] = set()

    def is_new(key: tuple[Any, ...]) -> bool:
        before = len(seen)
        seen.add(hash(key))
        return len(seen) > before

    return is_new


# --- style ---


def _styled(source: _Source) -> tuple[list[StyledVote], str]:
    """Decided comparisons whose answers, or whose counts of them, are in the file; and what length is counted in."""
    counts = {
        f"{side}_{name}": Func(
            f"{side}_text", Value(pattern), Value(1), Value("n"), function="regexp_count", output_field=IntegerField()
        )
        for side in ("left", "right")
        for name, pattern in MARKS.items()
    }
    lengths = {f"{side}_{LENGTH}": Length(f"{side}_text") for side in ("left", "right")}
    columns = ("left", "right", "verdict", "preference", "problem_id", "rater", "repeat", "raw__conv_metadata")
    rows = _newest(source, MAX_STYLED).filter(~Q(left_text="", right_text="") | Q(raw__has_key="conv_metadata"))
    is_new, found, units = _once(source), list[StyledVote](), set[str]()
    for row in rows.order_by("id").annotate(**counts, **lengths).values(*columns, *counts, *lengths).iterator():
        result, sides = result_of(row["verdict"]), _style_of(row)
        key = tuple(row[name] for name in ("problem_id", "left", "right", "rater", "repeat"))
        if result is None or sides is None or row["left"] == row["right"] or not is_new(key):
            continue
        unit, left, right = sides
        units.add(unit)
        found.append(
            StyledVote(
                left=row["left"], right=row["right"], result=result,
                preference=result if row["preference"] is None else 1 - row["preference"],
                cluster=row["problem_id"], left_style=left, right_style=right,
            )
        )  # fmt: skip
    return (found, units.pop()) if len(units) == 1 else ([], "")  # two units cannot be compared


def _style_of(row: Mapping[str, Any]) -> tuple[str, dict[str, float], dict[str, float]] | None:
    """(unit of length, of the left, of the right): as the file counted it, else from the answers."""
    counted = row["raw__conv_metadata"]
    if isinstance(counted, dict):
        left, right = (_counted(counted, side) for side in ("a", "b"))
        return (TOKENS, left, right) if LENGTH in left and LENGTH in right else None
    if not row[f"left_{LENGTH}"] or not row[f"right_{LENGTH}"]:
        return None  # one of the answers is not in the file
    names = (LENGTH, *MARKS)
    left, right = ({name: float(row[f"{side}_{name}"]) for name in names} for side in ("left", "right"))
    return CHARACTERS, left, right


def _counted(counts: Mapping[str, Any], side: str) -> dict[str, float]:
    found = {name: _number(counts.get(key.format(side))) for name, key in ARENA_COUNTS.items()}
    return {name: number for name, number in found.items() if number is not None}


def _number(value: Any) -> float | None:
    """A count, or the sum of counts by kind: {"h1": 0, "h2": 3} -> 3."""
    if isinstance(value, dict):
        value = sum(part for part in value.values() if isinstance(part, int | float))
    return float(value) if isinstance(value, int | float) and value >= 0 else None


# --- agreement ---


def _agreements(benchmark: int) -> list[RaterAgreement]:
    """Of every two raters with comparisons in common, and of people among themselves."""
    imported = Comparison.objects.filter(set__benchmark_id=benchmark, by__in=("judge", PEOPLE))
    counted = imported.values("by", "rater").annotate(n=Count("id")).filter(by="judge").order_by("-n", "rater")
    names = [f"judge:{row['rater']}" for row in counted[:MAX_RATERS]]
    said = {name: _said(imported.filter(by="judge", rater=name.removeprefix("judge:"))) for name in names}
    if people := _said(imported.filter(by=PEOPLE)):
        said[PEOPLE] = people
    found = {
        (first, second): agreed(said[first], said[second])
        for place, first in enumerate(said)
        for second in list(said)[place + 1 :]
    }
    if people:
        found[PEOPLE, PEOPLE] = agreed_among(people)
    return [
        RaterAgreement(benchmark_id=benchmark, first=first, second=second, result=msgspec.to_builtins(one))
        for (first, second), one in found.items()
        if one.with_ties.n
    ]


def _said(comparisons: QuerySet[Comparison]) -> Said:
    columns = ("problem_id", "left", "right", "verdict", "rater", "repeat")
    rows = comparisons.order_by("-id").values_list(*columns)[:MAX_AGREED]
    once = dict.fromkeys(row for row in rows if row[1] != row[2])  # the same in two files of a judge
    return said_by((problem, left, right, result_of(verdict)) for problem, left, right, verdict, _, _ in once)
