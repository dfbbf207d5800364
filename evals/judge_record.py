"""What each judge version has said so far, and what that says about the judge. Inside a tenant.

Bounded by time and by number; the number of queries does not grow with the judges or what they said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from evals.judge_calls import Calls, Judgements, calls_of, judgements_in, rating_states, verdicts_of
from evals.judge_evidence import (
    RESULTS,
    Seen,
    beside_people_and_gold,
    drifts_of,
    gold_of,
    newest_comparisons,
    result_of,
    seen_by,
)
from evals.judging.anchors import Drift
from evals.judging.bias import (
    LengthBias,
    SelfPreference,
    length_bias_of_marks,
    length_bias_of_pairs,
    self_preference_of_marks,
    self_preference_of_pairs,
)
from evals.judging.canaries import Standing
from evals.judging.gold import GoldRecord, gold_record
from evals.judging.trust import trust_in
from evals.models import AnchorRun, CanaryRun, Comparison, JudgeVersion, RatingState, VerdictKind
from evals.services.canaries import standings
from evals.statistics.agreement import Agreement
from evals.statistics.proportions import Share, wilson
from registry.errors import NotFound


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
    calls, judgements = calls_of(ids, since, until), judgements_in(ids, since, until)
    seen = seen_by(ids, since, until)
    stand, runs, verdicts = standings(judges), _canary_runs(ids), verdicts_of(ids, since, until)
    ratings, drifts = rating_states(ids, since, until), drifts_of(ids)
    return [
        _record(
            judge,
            calls.get(judge.pk, Calls()),
            judgements.get(judge.pk, Judgements()),
            verdicts=verdicts.get(judge.pk, {}),
            seen=seen[judge.pk],
            standing=stand.get(judge.pk, Standing.NOT_RUN),
            canaries=runs.get(judge.pk),
            ratings=ratings.get(judge.pk, {}),
            anchors=drifts.get(judge.pk, (None, None)),
        )
        for judge in judges
    ]


def _record(
    judge: JudgeVersion,
    calls: Calls,
    judgements: Judgements,
    *,
    verdicts: Mapping[str, tuple[int, datetime]],
    seen: Seen,
    standing: Standing,
    canaries: CanaryRun | None,
    ratings: Mapping[str, tuple[int, datetime]],
    anchors: tuple[Drift | None, AnchorRun | None],
) -> JudgeRecord:
    trust = trust_in(seen.tests, people=beside_people_and_gold(seen, anchors[1]))
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


def _length_bias(judge: JudgeVersion, seen: Seen) -> LengthBias:
    if not judge.is_pairwise:
        return length_bias_of_marks([one.num_chars for one in seen.marks], [one.value for one in seen.marks])
    decided = [(one, result) for one in seen.comparisons if (result := result_of(one.verdict)) is not None]
    lengths = [(one.left_chars, one.right_chars) for one, _ in decided]
    return length_bias_of_pairs(lengths, [result for _, result in decided])


def _self_preference(judge: JudgeVersion, seen: Seen) -> SelfPreference:
    if not judge.is_pairwise:
        return self_preference_of_marks(
            judge.model, [one.rated for one in seen.marks], [one.value for one in seen.marks]
        )  # fmt: skip
    tests = seen.tests[: len(seen.comparisons)]  # in the order of the comparisons
    found = [
        (one, result, None if tested is None else RESULTS.get(tested))
        for one, (_, tested) in zip(seen.comparisons, tests, strict=True)
        if (result := result_of(one.verdict)) is not None
    ]
    return self_preference_of_pairs(
        judge.model,
        [(one.left, one.right) for one, _, _ in found],
        [result for _, result, _ in found],
        [tested for _, _, tested in found],
    )


def _gold_record(judge: JudgeVersion, seen: Seen, anchors: Sequence[tuple[float, float]]) -> GoldRecord:
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
    rest = [result for one in alone if (result := result_of(one.verdict)) is not None]
    return gold_record(
        [vote for _, vote in by_person], [said for said, _ in by_person], rest, anchors=anchors, is_pairwise=True
    )


def _canary_runs(ids: list[int]) -> dict[int, CanaryRun]:
    newest = CanaryRun.objects.filter(judge_id__in=ids).order_by("judge_id", "-requested_at").distinct("judge_id")
    return {run.judge_id: run for run in newest}


def judgements_of(judge: JudgeVersion) -> list[Comparison]:
    """The newest of all this judge ever said about problems."""
    return newest_comparisons([judge.pk], None, None)
