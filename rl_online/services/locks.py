"""Locks by name, kept by the database: whoever does not get one is told at once and does not wait."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def alone(name: str) -> Iterator[bool]:
    """Whether this connection got the lock, which it keeps until the end of the block."""
    is_alone = _ask("pg_try_advisory_lock", name)
    try:
        yield is_alone
    finally:
        if is_alone:
            _ask("pg_advisory_unlock", name)


def lock_until_commit(name: str) -> bool:
    """Whether this transaction got the lock, which it keeps until its end."""
    return _ask("pg_try_advisory_xact_lock", name)


def _ask(function: str, name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}(hashtextextended(%s, 0))", [name])
        return bool(cursor.fetchone()[0])
