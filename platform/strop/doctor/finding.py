"""What one check of the doctor says."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, and something should be done
    BROKEN = "broken"  # something cannot work like this
    SKIPPED = "skipped"  # not to be told now, e.g. because nothing runs


@dataclass(frozen=True, kw_only=True)
class Finding:
    check: str  # its short name, always the same
    level: Level
    found: str  # what is so, in one line
    why: str = ""  # why it matters; empty when all is well
    fix: str = ""  # what to do about it, a command where there is one

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Check = Callable[[], Finding]


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, level=Level.OK, found=found)


def warning(check: str, found: str, *, why: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.WARNING, found=found, why=why, fix=fix)


def broken(check: str, found: str, *, why: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.BROKEN, found=found, why=why, fix=fix)


def skipped(check: str, found: str) -> Finding:
    return Finding(check=check, level=Level.SKIPPED, found=found)
