"""Problem sets, runs on them, and what was measured: every table of this room, where Django looks for them."""

from evals.models.anchors import AnchorRun, AnchorSet
from evals.models.benchmarks import Benchmark, Problem
from evals.models.calls import JudgeCall
from evals.models.canaries import CanaryRun
from evals.models.comparisons import Comparison, ComparisonSet, ImportedStandings, RaterAgreement, VerdictKind
from evals.models.judges import JudgeDuty, JudgeVersion, Panel, Subject
from evals.models.ratings import GoldLabel, LiveRating, RatingState
from evals.models.runs import EvalRun, EvalState, RunState, Score, ScoreStatus

__all__ = [
    "AnchorRun",
    "AnchorSet",
    "Benchmark",
    "CanaryRun",
    "Comparison",
    "ComparisonSet",
    "EvalRun",
    "EvalState",
    "GoldLabel",
    "ImportedStandings",
    "JudgeCall",
    "JudgeDuty",
    "JudgeVersion",
    "LiveRating",
    "Panel",
    "Problem",
    "RaterAgreement",
    "RatingState",
    "RunState",
    "Score",
    "ScoreStatus",
    "Subject",
    "VerdictKind",
]
