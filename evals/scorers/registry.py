"""Scorers by the name that runs, rows and reward specs use."""

from collections.abc import Callable

from evals.scorers.code_quality import CodeQuality
from evals.scorers.efficiency import Efficiency
from evals.scorers.execution import Executability, Generality, TestShare, UnitTests
from evals.scorers.scorer import Scorer

SCORERS: dict[str, Callable[[], Scorer]] = {
    "executability": Executability,
    "unit_tests": UnitTests,
    "test_share": TestShare,
    "generality": Generality,
    "code_quality": CodeQuality,
    "efficiency": Efficiency,
}


def scorer_named(name: str) -> Scorer:
    """Raises ValueError, naming the known ones."""
    if name not in SCORERS:
        raise ValueError(f"no scorer is called {name!r}; there are {', '.join(sorted(SCORERS))}")
    return SCORERS[name]()
