"""Scorers by the name that runs, rows and reward specs use."""

from evals.scorers.execution import Executability, UnitTests
from evals.scorers.scorer import Scorer

SCORERS: dict[str, type[Executability] | type[UnitTests]] = {
    Executability.name: Executability,
    UnitTests.name: UnitTests,
}


def scorer_named(name: str) -> Scorer:
    """Raises ValueError, naming the known ones."""
    if name not in SCORERS:
        raise ValueError(f"no scorer is called {name!r}; there are {', '.join(sorted(SCORERS))}")
    return SCORERS[name]()
