"""How far two raters agree beyond chance: a judge against tests, or against people."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from evals.statistics.distributions import ndtri
from evals.statistics.estimate import CONFIDENCE, Estimate, around, unknown
from evals.statistics.proportions import Share, wilson


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Share of equal ratings, and Cohen's kappa with its two-sided interval.

    kappa is None where it is undefined: no items, or chance agreement already 1 (both raters constant and equal).
    """

    n: int
    agreement: Share
    kappa: float | None
    kappa_se: float | None
    kappa_low: float | None
    kappa_high: float | None
    confidence: float = CONFIDENCE

    def estimate(self) -> Estimate:
        """Kappa as every other number, with its normal interval."""
        if self.kappa is None:
            why = "both raters always said the same" if self.n else "no data"
            return unknown(why, n=self.n, confidence=self.confidence)
        return around(self.kappa, self.kappa_se, n=self.n, confidence=self.confidence)


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable], *, confidence: float = CONFIDENCE) -> Agreement:
    """Compare two raters item by item; the SE is Fleiss, Cohen and Everitt's (1969) large-sample one."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} ratings against {len(second)}; both raters must rate the same items")
    n = len(first)
    equal = sum(a == b for a, b in zip(first, second, strict=True))
    share = wilson(equal, n, confidence=confidence)
    if n == 0:
        return Agreement(n=0, agreement=share, kappa=None, kappa_se=None, kappa_low=None, kappa_high=None)
    cells = {pair: count / n for pair, count in Counter(zip(first, second, strict=True)).items()}
    row = {label: count / n for label, count in Counter(first).items()}
    column = {label: count / n for label, count in Counter(second).items()}
    by_chance = sum(row[label] * column.get(label, 0.0) for label in row)
    if by_chance == 1:
        return Agreement(n=n, agreement=share, kappa=None, kappa_se=None, kappa_low=None, kappa_high=None)
    observed = equal / n
    kappa = (observed - by_chance) / (1 - by_chance)
    se = _kappa_se(cells, row, column, n=n, kappa=kappa, by_chance=by_chance)
    half_width = float(ndtri(0.5 + confidence / 2)) * se
    return Agreement(
        n=n,
        agreement=share,
        kappa=kappa,
        kappa_se=se,
        kappa_low=max(-1.0, kappa - half_width),
        kappa_high=min(1.0, kappa + half_width),
        confidence=confidence,
    )


def _kappa_se(
    cells: dict[tuple[Hashable, Hashable], float],
    row: dict[Hashable, float],
    column: dict[Hashable, float],
    *,
    n: int,
    kappa: float,
    by_chance: float,
) -> float:
    left = 1 - kappa
    on_diagonal = sum(share * (1 - (row[a] + column[b]) * left) ** 2 for (a, b), share in cells.items() if a == b)
    off_diagonal = left**2 * sum(
        share * (column.get(a, 0.0) + row.get(b, 0.0)) ** 2 for (a, b), share in cells.items() if a != b
    )
    variance = (on_diagonal + off_diagonal - (kappa - by_chance * left) ** 2) / (n * (1 - by_chance) ** 2)
    return math.sqrt(max(0.0, variance))
