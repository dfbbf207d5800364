"""Which judges have a vote, and which are paused for rewards and gates. Inside a tenant."""

from collections.abc import Iterable, Sequence

from evals.judge_evidence import beside_people_and_gold, drifts_of, seen_by
from evals.judging.canaries import Standing
from evals.judging.trust import Trust, trust_in
from evals.models import JudgeVersion
from evals.services.canaries import standings


def trusts(judges: Sequence[JudgeVersion]) -> dict[int, Trust]:
    """Whether each has a vote, by the newest of all they ever said: what the gate goes by. Queries do not grow."""
    ids = [judge.pk for judge in judges]
    seen, stand, drifts = seen_by(ids, None, None), standings(judges), drifts_of(ids)
    return {
        key: trust_in(
            seen[key].tests,
            people=beside_people_and_gold(seen[key], drifts.get(key, (None, None))[1]),
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
