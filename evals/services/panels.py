"""What panels of judges make of a turn: the mean of their marks, once all have spoken.

The mark is kept as a Score for those who look at the turn. Whoever learns takes `panel_marks`, which asks anew who may
vote: a judge that was paused after it spoke abstains from then on, and speaks again when it is no longer paused. Inside
a tenant.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from evals.judge_trust import paused_judges
from evals.judging.panel import PanelMark, panel_mark
from evals.models import JudgeVersion, LiveRating, Panel, RatingState, Score, ScoreStatus, Subject

PREFIX = "panel:"  # of the name under which a reward spec weighs it

Said = Mapping[int, float | None]  # judge -> its mark, None without one; only those who have spoken


def scorer_of(panel: Panel) -> str:
    return f"{PREFIX}{panel.name}"


def score_panels(row: LiveRating) -> None:
    """Of the panels this judge sits on, those whose judges have all spoken. The lock lets the last one see the rest."""
    for panel in Panel.objects.select_for_update().filter(judges__contains=[row.judge_id]):
        said = _said([panel], [row.subject_ref]).get(row.subject_ref, {})
        found = _mark(panel, said, _paused([panel]))
        if found is not None:
            _keep(panel, row.subject_ref, found)


def panel_marks(turns: Sequence[str]) -> dict[str, dict[str, float]]:
    """turn -> `panel:<name>` -> the mark as its judges stand now. Turns and panels without one are absent."""
    panels = list(Panel.objects.order_by("pk"))
    if not panels:
        return {}
    paused, found = _paused(panels), defaultdict[str, dict[str, float]](dict)
    for turn, said in _said(panels, turns).items():
        for panel in panels:
            mark = _mark(panel, said, paused)
            if mark is not None and mark.value is not None:
                found[turn][scorer_of(panel)] = mark.value
    return dict(found)


def _said(panels: Iterable[Panel], turns: Sequence[str]) -> dict[str, dict[int, float | None]]:
    judges = {key for panel in panels for key in panel.judges}
    current = LiveRating.objects.filter(
        judge_id__in=judges, subject=Subject.TURN, subject_ref__in=turns, superseded_at=None
    )
    found = defaultdict[str, dict[int, float | None]](dict)
    spoken = current.exclude(state=RatingState.WAITING).values_list("subject_ref", "judge_id", "value")
    for turn, judge, value in spoken:
        found[turn][judge] = value
    return dict(found)


def _paused(panels: Iterable[Panel]) -> set[int]:
    return paused_judges(JudgeVersion.objects.filter(pk__in={key for panel in panels for key in panel.judges}))


def _mark(panel: Panel, said: Said, paused: Set[int]) -> PanelMark | None:
    """None until all its judges have spoken. A paused judge abstains."""
    if not said.keys() >= set(panel.judges):
        return None
    values = [None if key in paused else said[key] for key in panel.judges]
    return panel_mark(values, quorum=panel.quorum, max_spread=panel.max_spread)


def _keep(panel: Panel, turn: str, found: PanelMark) -> None:
    Score.objects.update_or_create(
        turn_ref=turn,
        scorer=scorer_of(panel),
        scorer_version=str(panel.pk),
        defaults={
            "status": ScoreStatus.UNSCORED if found.value is None else ScoreStatus.SCORED,
            "value": found.value,
            "explanation": found.reason,
            "parts": {"votes": found.num_votes, "abstained": found.num_abstained, "spread": found.spread},
        },
    )
