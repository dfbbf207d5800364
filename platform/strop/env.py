"""Typed readers for environment variables: the one place a setting's text becomes a value.

A bad value raises BadSetting, which names the variable, what was found and what would be right.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

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


@dataclass(frozen=True, kw_only=True)
class Email:
    """Where e-mail goes. Nothing set: into files, so that what would be sent can be read."""

    backend: str
    folder: str  # for the file backend
    host: str = ""
    port: int = 25
    user: str = ""
    password: str = ""
    starttls: bool = False
    ssl: bool = False

    @property
    def is_delivered(self) -> bool:
        """Whether it leaves this machine."""
        return bool(self.host)


def email(name: str, *, outbox: Path) -> Email:
    """`smtp://user:password@host:587` (STARTTLS), `smtps://...:465`, `smtp+plain://host:25`, `console:` or `file:`."""
    parts = urlsplit(os.environ.get(name, "") or "file:")
    django = "django.core.mail.backends"
    if parts.scheme == "console":
        return Email(backend=f"{django}.console.EmailBackend", folder="")
    if parts.scheme == "file":
        return Email(backend=f"{django}.filebased.EmailBackend", folder=parts.path or str(outbox))
    ports = {"smtp": 587, "smtps": 465, "smtp+plain": 25}
    if parts.scheme not in ports or not parts.hostname:
        raise BadSetting(f"{name} is not smtp://user:password@host:587, smtps://, smtp+plain://, console: or file:")
    return Email(
        backend=f"{django}.smtp.EmailBackend",
        folder="",
        host=parts.hostname,
        port=parts.port or ports[parts.scheme],
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        starttls=parts.scheme == "smtp",
        ssl=parts.scheme == "smtps",
    )


def _number(name: str, default: T, kind: Callable[[str], T], wanted: str) -> T:
    raw = os.environ.get(name, "")
    if raw == "":
        return default
    try:
        return kind(raw)
    except ValueError:
        raise BadSetting(f"{name} is {raw!r}; use {wanted}") from None
