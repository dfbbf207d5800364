"""Which checkpoints keep their files, and which deltas stay so that the others can be made again.

Pure: the caller brings one policy's checkpoints and what each is needed for. A deleted checkpoint among the newest
`rebuildable` versions can be rebuilt from the nearest older one with files, its keyframe, along the deltas between; so
a keyframe of such a chain and the chain's deltas are kept too. Not here: what needs a checkpoint (services.retention).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

KEYFRAME_EVERY = 10  # versions; bounds how long a chain gets, and how much outlives its window
CHAIN = "a chain of deltas starts here"
NEWEST = "one of the newest"


@dataclass(frozen=True, kw_only=True)
class Version:
    """One checkpoint of a policy."""

    number: int
    parent: int | None
    has_files: bool
    needed_for: str = ""  # why it must keep its files whatever its age; empty: nothing needs it
    has_delta: bool = False  # from its parent, on disk


@dataclass(frozen=True, kw_only=True)
class Choice:
    keep: dict[int, str] = field(default_factory=dict)  # version -> why its files stay
    delete: list[int] = field(default_factory=list)  # versions whose files go
    deltas: set[int] = field(default_factory=set)  # versions whose delta stays


def choose(versions: Sequence[Version], *, newest: int, rebuildable: int) -> Choice:
    """What stays and what goes; every version with files is in exactly one of `keep` and `delete`."""
    assert newest >= 1 and rebuildable >= 1
    known = {one.number: one for one in versions}
    ordered = sorted(known)
    window = set(ordered[-rebuildable:])
    keep = {one.number: one.needed_for for one in versions if one.needed_for and one.has_files}
    keep |= {number: keep.get(number) or NEWEST for number in ordered[-newest:] if known[number].has_files}
    deltas = {number for number in keep if known[number].has_delta}
    for number in ordered:
        one = known[number]
        if one.has_files and number in window and number not in keep and number % KEYFRAME_EVERY == 0:
            keep[number] = CHAIN
    for number in sorted(window - keep.keys()):
        _keep_chain(number, known, window, keep, deltas)
    delete = [number for number in ordered if known[number].has_files and number not in keep]
    return Choice(keep=keep, delete=delete, deltas=deltas)


def _keep_chain(
    number: int, known: Mapping[int, Version], window: set[int], keep: dict[int, str], deltas: set[int]
) -> None:
    """Keep what `number` can be made again from; where that is broken, itself."""
    chain = chain_to(number, known, stop=lambda at: at in keep or (at not in window and known[at].has_files))
    if chain is None:
        if known[number].has_files:
            keep[number] = CHAIN
        return
    start, links = chain
    keep.setdefault(start, CHAIN)
    deltas.update(links)


def chain_to(number: int, known: Mapping[int, Version], *, stop: Callable[[int], bool]) -> tuple[int, list[int]] | None:
    """(keyframe, versions whose deltas lead from it to `number`, oldest first); None where a link is missing."""
    links: list[int] = []
    at = known[number]
    while not (stop(at.number) and at.has_files):
        if not at.has_delta or at.parent is None or at.parent not in known:
            return None
        links.append(at.number)
        at = known[at.parent]
    return at.number, links[::-1]
