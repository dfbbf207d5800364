"""Measuring a live turn that is linked to a problem with tests.

The scores are shown beside the user's label; whether they teach anything is for the RewardSpec to say (weight 0 by
default).
"""

from collections.abc import Sequence
from uuid import UUID

from evals.models import Score, ScoreStatus
from evals.refs import problem_ref
from evals.scorers.registry import scorer_named
from evals.selectors import find_problem, spec_of
from evals.services.runs import score_row
from registry.errors import InvalidInput
from registry.tenancy import tenant

TURN_SCORERS = ("unit_tests", "executability")


def score_turn(
    project_id: UUID, turn_ref: str, problem: str, output: str, *, scorers: Sequence[str] = TURN_SCORERS
) -> list[Score]:
    """One stored score per scorer; those that exist are kept, a masked one is measured again.

    `problem` is `<benchmark>@<version>/<id>`. Raises InvalidInput for a malformed or held-out problem, NotFound for an
    unknown one. Call it outside a transaction: it runs the output.
    """
    with tenant(project_id):
        found = find_problem(problem_ref(problem))
        if found.benchmark.is_held_out:
            raise InvalidInput(f"{found.benchmark} is held out; live turns may not be scored by it", field="problem")
        kept = Score.objects.filter(turn_ref=turn_ref).exclude(status=ScoreStatus.INFRA)
        done = set(kept.values_list("scorer", "scorer_version"))
    for name in scorers:
        scorer = scorer_named(name)
        if (scorer.name, scorer.version) not in done:
            measured = scorer.score(spec_of(found), output)
            _store(project_id, score_row(measured, scorer, found, turn_ref=turn_ref))
    with tenant(project_id):
        return list(Score.objects.filter(turn_ref=turn_ref, scorer__in=scorers).order_by("id"))


def _store(project_id: UUID, row: Score) -> None:
    measured = ("problem", "status", "value", "explanation", "parts", "sandbox_level")
    with tenant(project_id):
        Score.objects.update_or_create(
            turn_ref=row.turn_ref,
            scorer=row.scorer,
            scorer_version=row.scorer_version,
            defaults={name: getattr(row, name) for name in measured},
        )
