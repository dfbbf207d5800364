"""What the gate may look at: scores, side effects and a judge's wins, problem by problem."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rl_online.gate.forgetting import Forgetting


class Stage(StrEnum):
    """Where the checkpoint stands while it is judged."""

    CANDIDATE = "candidate"  # serves nobody
    CANARY = "canary"  # serves a part of the traffic
    SERVING = "serving"  # serves, and is being checked against its predecessor


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One baseline checkpoint's scores on a part."""

    role: str  # "serving" or "first"
    checkpoint: str  # "<policy>@<version>"
    scores: Mapping[str, float | None]  # problem -> [0, 1]; None is unscored


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """One part of a suite's problems, a half or another slice, answered by the candidate and every baseline."""

    name: str  # "seen families", "all problems", "family=add"; see rl_online.gate.parts
    families: Mapping[str, str]  # problem -> family; its keys are all problems asked
    candidate: Mapping[str, float | None]
    baselines: tuple[Arm, ...]
    suite: str = ""  # "<benchmark>@<version>"; "": there is but one


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """A side effect measured on each answer of the candidate and of the serving checkpoint; more is worse."""

    name: str  # "empty answers", "output tokens", ...
    candidate: Mapping[str, float]  # problem -> value; a problem without one is left out
    serving: Mapping[str, float]
    relative: bool = False  # the limit is a part of the serving checkpoint's mean


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedWins:
    """How often a judge preferred the candidate's answer to the serving checkpoint's, asked in both orders."""

    judge: str
    num_decided: int  # pairs with a verdict; a tie is half a win
    num_undecided: int  # unreadable or failed
    rate: float | None  # None: none is decided
    low: float | None  # of the two-sided 95 % interval
    high: float | None
    no_vote: str = ""  # why the judge may not vote; "": it may


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Everything the decision may look at."""

    candidate: str  # "<policy>@<version>"
    halves: tuple[Half, ...]
    suites: tuple[str, ...] = ()  # those that were to be measured; one without a part is refused
    stage: Stage = Stage.CANDIDATE
    rounds: int = 1  # how often the gate has asked for answers by now
    guards: tuple[Guard, ...] = ()
    forgetting: Forgetting | None = None  # None: nobody has looked
    wins: JudgedWins | None = None  # weighed where the limits ask for it and the judge may vote
    judge: Mapping[str, Any] | None = None  # all that is shown of the judge, never weighed
    refusals: tuple[str, ...] = ()  # why some answers can never be had: asking again is of no use
