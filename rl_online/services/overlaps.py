"""Which problems stand in sealed batches: a measurement on what was trained on says little.

Job `rl_online.overlap` hashes a batch's samples once, when it is sealed or when it is first asked about, and looks for
problems in the hashes; what it found stays when the text goes. Memory is bounded by SAMPLES_AT_ONCE and
PROBLEMS_AT_ONCE. All but the job is called inside a tenant. Not here: when two texts overlap (evals.overlap).
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from django.db.models import Exists, Max, OuterRef, QuerySet

from evals import overlap
from evals.models import Benchmark, Problem
from evals.overlap import METHOD, RULE, SHARE, Text, asked_text, hashed
from feedback.models import Turn
from jobs.services import ClaimedJob, NotYet, enqueue
from registry.services import all_projects
from registry.tenancy import tenant
from rl_online.collecting import payloads_of
from rl_online.models import BatchSample, Overlap, OverlapCheck, RewardBatch, SampleHashes

T = TypeVar("T")

OVERLAP_JOB = "rl_online.overlap"
SLICE_S = 40.0  # of a worker's time; Celery ends a task at 90 s
LOOK_EVERY_S = 120  # at projects this process has not asked yet whether the rule changed
HASH_AT_ONCE = 200
SAMPLES_AT_ONCE = 2000
PROBLEMS_AT_ONCE = 500
CANDIDATES = 5  # samples with most n-grams of a problem, which are looked at closely
MOST_SHOWN = 200
_asked: set[UUID] = set()  # projects: the rule changes only with the program, so once for each process


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """How a benchmark stands to all that was trained on."""

    num_problems: int
    num_batches: int  # with trained samples
    num_checked: int  # of those, for all problems there are now, by the rule there is now
    num_outdated: int  # looked at by another rule
    num_samples: int  # trained ones that were looked at
    num_without_text: int  # that could not be
    num_overlapping: int  # problems
    overlaps: tuple[Overlap, ...]  # at most MOST_SHOWN, the largest share first; with problem, batch and sample

    @property
    def is_complete(self) -> bool:
        return self.num_checked == self.num_batches


def ask_about_batch(batch: RewardBatch) -> None:
    """In the caller's transaction: look for every problem in what has been sealed."""
    enqueue(OVERLAP_JOB, project_id=batch.project_id, payload={"batch": str(batch.pk)}, key=f"batch:{batch.pk}")


def ask_about_benchmark(benchmark: Benchmark) -> None:
    """In the caller's transaction: look for its problems in every batch that was not looked at for all of them."""
    payload = {"benchmark": benchmark.pk}
    enqueue(OVERLAP_JOB, project_id=benchmark.project_id, payload=payload, key=f"benchmark:{benchmark.pk}")


def ask_after_another_rule() -> None:
    """Look again where another rule than today's was looked by: after an upgrade that changed it."""
    for project in all_projects():
        if project.id in _asked:
            continue
        with tenant(project.id):
            outdated = OverlapCheck.objects.exclude(rule=RULE).values("benchmark")
            for benchmark in Benchmark.objects.filter(pk__in=outdated):
                ask_about_benchmark(benchmark)
        _asked.add(project.id)


def overlap_job(job: ClaimedJob) -> None:
    """Pairs of benchmark and batch, one by one, PROBLEMS_AT_ONCE in a transaction; killed, it goes on after the last.

    Raises NotYet when its time is up.
    """
    assert job.project_id is not None
    deadline = time.monotonic() + SLICE_S
    with tenant(job.project_id):
        pairs = _open_pairs(job.payload)
    sorted_once: dict[UUID, list[_Samples]] = {}
    for benchmark_id, batch_id in pairs:
        _hash_batch(job, batch_id, deadline)
        is_over = False
        while not is_over:
            with tenant(job.project_id):
                benchmark, batch = Benchmark.objects.get(pk=benchmark_id), RewardBatch.objects.get(pk=batch_id)
                is_over = _check_next(benchmark, batch, sorted_once)
            _go_on(job, deadline)
    if not pairs and "batch" in job.payload:
        _hash_batch(job, UUID(job.payload["batch"]), deadline)  # for benchmarks that come later


def _go_on(job: ClaimedJob, deadline: float) -> None:
    """After each transaction."""
    job.renew()
    if time.monotonic() > deadline:
        raise NotYet(0, "looks for problems in batches")


def report(benchmark: Benchmark) -> Report:
    last = Problem.objects.filter(benchmark=benchmark).aggregate(last=Max("pk"))["last"] or 0
    batches = set(_trained_batches().values_list("pk", flat=True))
    checks = [one for one in OverlapCheck.objects.filter(benchmark=benchmark) if one.batch_id in batches]
    done = [one for one in checks if one.rule == RULE and one.last_problem >= last]
    found = Overlap.objects.filter(problem__benchmark=benchmark)
    shown = found.select_related("problem", "batch__policy", "sample").order_by("-share", "-found_at", "-id")
    return Report(
        num_problems=Problem.objects.filter(benchmark=benchmark).count(),
        num_batches=len(batches),
        num_checked=len(done),
        num_outdated=sum(one.rule != RULE for one in checks),
        num_samples=sum(one.num_samples for one in done),
        num_without_text=sum(one.num_without_text for one in done),
        num_overlapping=found.values("problem").distinct().count(),
        overlaps=tuple(shown[:MOST_SHOWN]),
    )


def overlaps_of(problem: Problem) -> list[Overlap]:
    """Batches that hold it, the largest share first."""
    found = Overlap.objects.filter(problem=problem).select_related("batch__policy", "sample")
    return list(found.order_by("-share", "-found_at", "-id")[:MOST_SHOWN])


def seen_in_training(problems: Collection[int]) -> set[int]:
    """Those of these problems (keys) that stand in a sealed batch. One query."""
    return set(Overlap.objects.filter(problem_id__in=list(problems)).values_list("problem_id", flat=True))


def _trained_batches() -> "QuerySet[RewardBatch]":
    return RewardBatch.objects.filter(Exists(_trained(OuterRef("pk"))))


def _trained(batch: Any) -> "QuerySet[BatchSample]":
    """What taught something new: a correction is of a turn that an earlier sample holds."""
    return BatchSample.objects.filter(batch=batch, is_heldout=False, is_correction=False)


def _open_pairs(payload: dict[str, Any]) -> list[tuple[int, UUID]]:
    """(benchmark, batch) that were not looked at for all problems there are by today's rule, newest batches first."""
    benchmarks = Benchmark.objects.annotate(last=Max("problems__pk")).filter(last__isnull=False)
    batches = _trained_batches()
    if "batch" in payload:
        batches = batches.filter(pk=payload["batch"])
    else:
        benchmarks = benchmarks.filter(pk=payload["benchmark"])
    lasts = dict(benchmarks.values_list("pk", "last"))
    keys = list(batches.order_by("-created_at", "-pk").values_list("pk", flat=True))
    checks = OverlapCheck.objects.filter(benchmark__in=lasts, batch__in=keys, rule=RULE)
    rows = checks.values_list("benchmark_id", "batch_id", "last_problem")
    done = {(benchmark, batch) for benchmark, batch, last in rows if last >= lasts[benchmark]}
    return [(benchmark, batch) for batch in keys for benchmark in lasts if (benchmark, batch) not in done]


def _hash_batch(job: ClaimedJob, batch_id: UUID, deadline: float) -> None:
    """Keep the hashes of its samples that have none yet and whose text is still there."""
    assert job.project_id is not None
    after = 0
    while True:
        with tenant(job.project_id):
            missing = _trained(batch_id).filter(pk__gt=after).exclude(hashes__method=METHOD).order_by("pk")
            samples = list(missing[:HASH_AT_ONCE])
            if not samples:
                return
            after = samples[-1].pk
            _hash(samples)
        _go_on(job, deadline)


def _hash(samples: Sequence[BatchSample]) -> None:
    turns = {turn.turn_id: turn for turn in Turn.objects.filter(turn_id__in=[one.turn_ref for one in samples])}
    payloads = payloads_of(list(turns.values()))
    rows = []
    for sample in samples:
        payload = payloads.get(sample.turn_ref)
        if payload is None:
            continue
        asked = hashed(asked_text(payload.prompt, payload.messages))
        grams = np.concatenate([asked.grams, hashed(payload.completion or "").grams])
        packed = grams.astype("<u8").tobytes()
        row = {"batch_id": sample.batch_id, "method": METHOD, "whole": asked.whole, "grams": packed}
        rows.append(SampleHashes(sample=sample, **row))
    SampleHashes.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["sample"],
        update_fields=["method", "whole", "grams"],
    )


def _check_next(benchmark: Benchmark, batch: RewardBatch, sorted_once: dict[UUID, list["_Samples"]]) -> bool:
    """Look for the next problems after the last check of this pair, and keep the nearest sample of each.

    True when there are no more.
    """
    check = OverlapCheck.objects.filter(benchmark=benchmark, batch=batch, rule=RULE).first()
    if check is None:  # what another rule found does not stand beside what this one finds
        Overlap.objects.filter(problem__benchmark=benchmark, batch=batch).delete()
    problems = Problem.objects.filter(benchmark=benchmark, pk__gt=check.last_problem if check else 0).order_by("pk")
    some = list(problems.values_list("pk", "prompt", "messages")[:PROBLEMS_AT_ONCE])
    if not some:
        return True
    texts = {key: hashed(asked_text(prompt, messages)) for key, prompt, messages in some}
    best: dict[int, tuple[float, int]] = {}  # problem -> (share, sample)
    for samples in _samples_of(batch, sorted_once):
        for key, text in texts.items():
            found = samples.nearest(text)
            if found is not None and found > best.get(key, (0.0, 0)):
                best[key] = found
    Overlap.objects.bulk_create(
        [Overlap(problem_id=key, batch=batch, sample_id=sample, share=share) for key, (share, sample) in best.items()],
        update_conflicts=True,
        unique_fields=["problem", "batch"],
        update_fields=["sample", "share"],
    )
    num_hashed = SampleHashes.objects.filter(batch=batch, method=METHOD).count()
    OverlapCheck.objects.update_or_create(
        benchmark=benchmark,
        batch=batch,
        defaults={
            "rule": RULE,
            "last_problem": max(texts),
            "num_problems": (check.num_problems if check else 0) + len(texts),
            "num_samples": num_hashed,
            "num_without_text": _trained(batch.pk).count() - num_hashed,
        },
    )
    return len(some) < PROBLEMS_AT_ONCE


class _Samples:
    """The hashes of some samples, sorted, so that a problem's n-grams are found by bisection.

    What is common is counted by conversation: each turn of a chat repeats all that was said before it.
    """

    def __init__(self, rows: Sequence[tuple[int, str, int, bytes]]) -> None:
        grams = [np.unique(np.frombuffer(packed, "<u8")) for *_, packed in rows]
        self._keys = [key for key, *_ in rows]
        self._by_whole = {whole: key for key, _, whole, _ in rows}
        every = np.concatenate([*grams, np.empty(0, np.uint64)])
        owners = np.repeat(np.arange(len(grams), dtype=np.int32), [len(one) for one in grams])
        texts = _joined(grams, [(session, whole) for _, session, whole, _ in rows])
        kept = ~np.isin(every, overlap.common(texts))
        order = np.argsort(every[kept], kind="stable")
        self._grams, self._owners = every[kept][order], owners[kept][order]

    def nearest(self, text: Text) -> tuple[float, int] | None:
        """(share, sample) of the one that holds most of this problem; None below SHARE."""
        if not text.num_words:
            return None
        if (same := self._by_whole.get(text.whole)) is not None:
            return 1.0, same
        first = np.searchsorted(self._grams, text.grams, "left")
        counts = np.searchsorted(self._grams, text.grams, "right") - first
        if not counts.sum():
            return None
        places = np.repeat(np.arange(len(text.grams)), counts)
        within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        owners = self._owners[np.repeat(first, counts) + within]
        likely = np.argsort(np.bincount(owners, minlength=len(self._keys)))[::-1][:CANDIDATES]
        shares = [(self._share(text, places[owners == owner]), self._keys[owner]) for owner in likely]
        best = max(shares)
        return best if best[0] >= SHARE else None

    def _share(self, text: Text, places: "np.ndarray[Any, Any]") -> float:
        found = np.zeros(len(text.grams), np.bool_)
        found[places] = True
        return overlap.share_in(text, found)


def _joined(grams: Sequence[overlap.Grams], asked: Sequence[tuple[str, int]]) -> list[overlap.Grams]:
    """One text of all turns of a session, and of all sessions that were asked the same; `asked` is (session, whole)."""
    first: dict[int, str] = {}  # whole -> the session it stands for
    stands_for: dict[str, str] = {}

    def root(session: str) -> str:
        while (other := stands_for.get(session, session)) != session:
            session = other
        return session

    for session, whole in asked:
        mine, same = root(session), root(first.setdefault(whole, session))
        if mine != same:
            stands_for[mine] = same
    texts: dict[str, list[overlap.Grams]] = {}
    for one, (session, _) in zip(grams, asked, strict=True):
        texts.setdefault(root(session), []).append(one)
    return [np.concatenate(parts) for parts in texts.values()]


def _samples_of(batch: RewardBatch, sorted_once: dict[UUID, list[_Samples]]) -> Iterator[_Samples]:
    """The batch looked at last stays in `sorted_once`, where it is no larger than SAMPLES_AT_ONCE."""
    if batch.pk not in sorted_once:
        sorted_once.clear()
        if SampleHashes.objects.filter(batch=batch, method=METHOD).count() > SAMPLES_AT_ONCE:
            yield from _parts_of(batch)
            return
        sorted_once[batch.pk] = list(_parts_of(batch))
    yield from sorted_once[batch.pk]


def _parts_of(batch: RewardBatch) -> Iterator[_Samples]:
    hashes = SampleHashes.objects.filter(batch=batch, method=METHOD).order_by("pk")
    rows = hashes.values_list("sample_id", "sample__session_ref", "whole", "grams").iterator(HASH_AT_ONCE)
    for some in _in_parts(rows, SAMPLES_AT_ONCE):
        yield _Samples([(key, session, whole, bytes(packed)) for key, session, whole, packed in some])


def _in_parts(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    waiting = iter(rows)
    while part := list(islice(waiting, size)):
        yield part
