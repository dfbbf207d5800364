"""Typed readers for environment variables: the one place a setting's text becomes a value.

A bad value raises BadSetting, which names the variable, what was found and what would be right.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class BadSetting(ValueError):
    """An environment variable holds something its reader cannot use."""


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def integer(name: str, default: int) -> int:
    return _number(name, default, int, "a whole number")


def number(name: str, default: float) -> float:
    return _number(name, default, float, "a number")


def flag(name: str, default: bool) -> bool:
    raw = os.environ.get(name, "")
    if raw == "":
        return default
    if raw.lower() in ("1", "true", "yes", "on"):
        return True
    if raw.lower() in ("0", "false", "no", "off"):
        return False
    raise BadSetting(f"{name} is {raw!r}; use 1 or 0")


def choice(name: str, default: str, options: Sequence[str]) -> str:
    raw = os.environ.get(name, default)
    if raw not in options:
        raise BadSetting(f"{name} is {raw!r}; use one of {', '.join(options)}")
    return raw


def path(name: str, default: Path | str) -> Path:
    return Path(os.environ.get(name) or default).expanduser().absolute()


def items(name: str, default: Sequence[str] = ()) -> list[str]:
    """A comma-separated list; blanks are dropped."""
    raw = os.environ.get(name)
    return list(default) if raw is None else [part.strip() for part in raw.split(",") if part.strip()]


def _number(name: str, default: T, kind: Callable[[str], T], wanted: str) -> T:
    raw = os.environ.get(name, "")
    if raw == "":
        return default
    try:
        return kind(raw)
    except ValueError:
        raise BadSetting(f"{name} is {raw!r}; use {wanted}") from None
