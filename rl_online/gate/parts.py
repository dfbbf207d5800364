"""Which problems of a suite are looked at together, and what limits may call them.

A suite falls into its halves (slice `half`: families seen in traffic, families never shown), or is one part where its
problems name none. Limits may name more: the whole of it, or a slice such as `family=add`.

With several suites a name may say which it means: `humaneval@1: family=add`, or without the version; `humaneval@1`
alone is the whole suite. A name that says no suite means the part in every suite that has it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WHOLE = "all problems"
REST = "other problems"  # without a half, where others have one
HALF, FAMILY = "half", "family"  # the slices that every benchmark of ours has

Slices = Mapping[str, str]  # of a problem, e.g. {"family": "add", "half": "seen families"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some problems of one suite."""

    suite: str
    name: str
    families: Mapping[str, str]  # problem -> family; a problem without one is its own


def parts_of(suite: str, problems: Mapping[str, Slices], named: Iterable[str]) -> list[Part]:
    """The halves by name, then what `named` (names in limits) asks for besides.

    Example: problems with families add and sort, no halves; named ["family=add"] -> "all problems", "family=add"
    """
    halves = {slices[HALF] for slices in problems.values() if HALF in slices}
    names = [*sorted(halves), REST] if halves else [WHOLE]
    names += [name for name in sorted({_within(suite, name) for name in named}) if name not in names]
    parts = [
        Part(
            suite=suite,
            name=name,
            families={key: slices.get(FAMILY, key) for key, slices in problems.items() if belongs(slices, name)},
        )
        for name in names
    ]
    return [part for part in parts if part.families]


def belongs(slices: Slices, part: str) -> bool:
    """Whether a problem with these slices is in the part of that name."""
    if part == WHOLE:
        return True
    key, equal, value = part.partition("=")
    if equal and slices.get(key) == value:
        return True
    return slices.get(HALF, REST) == part


def names_of(suite: str, part: str) -> list[str]:
    """What a limit on just this part may be called, the most exact first. The whole has its suite's names too."""
    spellings = [f"{one}: {part}" for one in _spellings(suite)] + [part]
    return spellings + _spellings(suite) if part == WHOLE else spellings


def covering(suite: str, part: str) -> list[str]:
    """Whose limit holds for this part, the most exact first: its own names, then those of its suite."""
    return list(dict.fromkeys([*names_of(suite, part), *_spellings(suite)]))


def _spellings(suite: str) -> list[str]:
    short = suite.rpartition("@")[0]
    return [name for name in (suite, short) if name]


def _within(suite: str, name: str) -> str:
    """A name in limits without its suite; a suite's own name is its whole."""
    for spelling in _spellings(suite):
        if name == spelling:
            return WHOLE
        if name.startswith(f"{spelling}: "):
            return name.removeprefix(f"{spelling}: ")
    return name
