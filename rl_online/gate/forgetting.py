"""How much worse a candidate predicts general text than its base: the mean over tokens, its error by document.

    rise = sum d_g / sum n_g        SE = sqrt(G/(G-1) sum (d_g - rise n_g)^2) / sum n_g

over G documents of n_g tokens, d_g the candidate's summed loss less the base's. A ratio of two sums over documents
(Cochran, Sampling Techniques, 6.3); the tokens of a document go together.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evals.statistics.distributions import stdtrit
from rl_online.gate.limits import Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentLoss:
    name: str
    num_tokens: int  # counted
    num_bytes: int  # of the text they spell; 0: unknown
    candidate_nats: float  # summed over the tokens
    base_nats: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgetting:
    """What was measured of one candidate, or why nothing was."""

    texts: str = ""
    digest: str = ""  # of the texts
    base: str = ""  # tree digest
    documents: tuple[DocumentLoss, ...] = ()
    unmeasured: str = ""  # the reason; "": it was

    @property
    def numbers(self) -> dict[str, float]:
        """As metrics of an update; nothing where nothing was measured."""
        tokens = sum(one.num_tokens for one in self.documents)
        if not tokens:
            return {}
        after, before = (
            math.fsum(getattr(one, name) for one in self.documents) / tokens for name in ("candidate_nats", "base_nats")
        )
        return {"general_nats": after, "general_nats_base": before, "forgetting": after - before}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Forgetting":
        documents = tuple(DocumentLoss(**one) for one in values["documents"])
        return cls(**{**values, "documents": documents})


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgettingFinding:
    """The measurement against its limit."""

    texts: str
    digest: str
    num_documents: int
    num_tokens: int
    candidate: float | None  # nats per token; None: unmeasured
    base: float | None
    candidate_bits: float | None  # bits per byte
    base_bits: float | None
    rise: float | None  # nats per token
    lower: float | None  # one-sided bounds of the rise; None: fewer than two documents
    upper: float | None
    at_most: float
    passes: bool
    sentence: str


def check_forgetting(measured: Forgetting, limits: Limits) -> ForgettingFinding:
    """It passes where the upper bound of the rise lies below the limit. What is unmeasured is said and holds nobody."""
    tokens = sum(one.num_tokens for one in measured.documents)
    num_bytes = sum(one.num_bytes for one in measured.documents)
    if measured.unmeasured or not tokens:
        reason = measured.unmeasured or "the texts have no token"
        return _finding(measured, limits, passes=True, sentence=f"general text: unmeasured, {reason}")
    after = math.fsum(one.candidate_nats for one in measured.documents)
    before = math.fsum(one.base_nats for one in measured.documents)
    rise = (after - before) / tokens
    reach = _reach(measured, rise, tokens, limits.confidence)
    upper = None if reach is None else rise + reach
    passes = upper is not None and upper < limits.max_forgetting
    return _finding(
        measured,
        limits,
        num_tokens=tokens,
        candidate=after / tokens,
        base=before / tokens,
        candidate_bits=after / math.log(2) / num_bytes if num_bytes else None,
        base_bits=before / math.log(2) / num_bytes if num_bytes else None,
        rise=rise,
        lower=None if reach is None else rise - reach,
        upper=upper,
        passes=passes,
        sentence=_in_words(measured, rise, upper, limits, passes=passes),
    )


def _finding(measured: Forgetting, limits: Limits, **changes: Any) -> ForgettingFinding:
    nothing = dict.fromkeys(("candidate", "base", "candidate_bits", "base_bits", "rise", "lower", "upper"))
    shared = {"texts": measured.texts, "digest": measured.digest, "num_documents": len(measured.documents)}
    return ForgettingFinding(**{"num_tokens": 0, "at_most": limits.max_forgetting, **nothing, **shared, **changes})


def _reach(measured: Forgetting, rise: float, tokens: int, confidence: float) -> float | None:
    """From the rise to each of its one-sided bounds."""
    num = len(measured.documents)
    if num < 2:
        return None
    squares = math.fsum((one.candidate_nats - one.base_nats - rise * one.num_tokens) ** 2 for one in measured.documents)
    return float(stdtrit(num - 1, confidence)) * math.sqrt(num / (num - 1) * squares) / tokens


def _in_words(measured: Forgetting, rise: float, upper: float | None, limits: Limits, *, passes: bool) -> str:
    said = f"general text: {_signed(rise)} nats per token on {len(measured.documents)} documents of {measured.texts}"
    if upper is None:
        return f"{said}, too few for a bound"
    verdict = "below" if passes else "not below"
    return f"{said}, upper {limits.confidence:.0%} bound {_signed(upper)} {verdict} {_signed(limits.max_forgetting)}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
