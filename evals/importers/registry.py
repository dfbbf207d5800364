"""Which importer reads which file.

Every format has one module (`evals.importers.record` says what it offers). Those that look for marks of their own are
asked first, the generic ones last. Nothing here reads a file to its end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from evals.importers import reading
from evals.importers.errors import Unreadable
from evals.importers.record import Battles, Run

MODULES = (
    "inspect_log",
    "lm_eval",
    "helm",
    "harbor",
    "terminal_bench",
    "swebench",
    "promptfoo",
    "alpaca_eval",
    "mt_bench",
    "arena",
    "openai_evals",
    "generic",
)  # in the order they are asked
MAX_DEPTH = 6  # folders below the one that was named


class Importer(Protocol):
    FORMAT: str

    def recognises(self, path: Path) -> bool: ...

    def read(self, path: Path) -> Iterator[Run | Battles]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What lies at a path: what can be read, each with its importer, and the files that no importer knows."""

    readable: Sequence[tuple[Importer, Path]]
    unknown: Sequence[Path]


def importers() -> list[Importer]:
    return [cast(Importer, import_module(f"evals.importers.{name}")) for name in MODULES]


def formats() -> list[str]:
    return [importer.FORMAT for importer in importers()]


def importer_named(name: str) -> Importer:
    """Raises Unreadable, naming those there are."""
    found = next((importer for importer in importers() if name == importer.FORMAT), None)
    if found is None:
        raise Unreadable(f"there is no format {name!r}; there are {', '.join(formats())}")
    return found


def importer_of(path: Path) -> Importer | None:
    """The first that recognises a file or folder."""
    return next((importer for importer in importers() if importer.recognises(path)), None)


def find(path: Path, *, format: str | None = None) -> Found:
    """What can be imported from a file, or from a folder and the folders in it. Raises Unreadable where nothing can."""
    if format is not None:
        return Found(readable=[(importer_named(format), path)], unknown=[])
    readable: list[tuple[Importer, Path]] = []
    unknown: list[Path] = []
    _walk(path, MAX_DEPTH, readable, unknown)
    if not readable:
        raise Unreadable(f"no format is recognised; name one of {', '.join(formats())}", where=path.name)
    return Found(readable=readable, unknown=unknown)


def _walk(path: Path, levels: int, readable: list[tuple[Importer, Path]], unknown: list[Path]) -> None:
    importer = importer_of(path)
    if importer is not None:
        readable.append((importer, path))
    elif not path.is_dir():
        unknown.append(path)
    else:
        for file in reading.files_under(path, depth=0):
            _walk(file, 0, readable, unknown)
        for folder in reading.folders_in(path) if levels else ():
            _walk(folder, levels - 1, readable, unknown)
