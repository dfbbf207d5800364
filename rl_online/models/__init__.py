"""The loop's own rows: every table of this room, where Django looks for them."""

from rl_online.models.alarms import Alarm, AlarmState
from rl_online.models.batches import BatchSample, Overlap, OverlapCheck, RewardBatch, SampleHashes, UpdateKind
from rl_online.models.engines import EngineHolding, EngineReport
from rl_online.models.gates import CanaryLook, GateReport
from rl_online.models.imports import ImportState, PolicyImport
from rl_online.models.plans import LearningPlan, Promotion, RewardSpec
from rl_online.models.sources import Corpus, CorpusState, TeacherAnswer, TeacherState
from rl_online.models.updates import OPEN_STATES, DryRun, DryRunState, RewardModel, UpdateMetric, UpdateRun, UpdateState

__all__ = [
    "OPEN_STATES",
    "Alarm",
    "AlarmState",
    "BatchSample",
    "CanaryLook",
    "Corpus",
    "CorpusState",
    "DryRun",
    "DryRunState",
    "EngineHolding",
    "EngineReport",
    "GateReport",
    "ImportState",
    "LearningPlan",
    "Overlap",
    "OverlapCheck",
    "PolicyImport",
    "Promotion",
    "RewardBatch",
    "RewardModel",
    "RewardSpec",
    "SampleHashes",
    "TeacherAnswer",
    "TeacherState",
    "UpdateKind",
    "UpdateMetric",
    "UpdateRun",
    "UpdateState",
]
