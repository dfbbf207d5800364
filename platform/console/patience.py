"""A limit on how long one page may keep the database busy."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled


class TooSlow(Exception):
    """The database was stopped in the middle of a query that took too long."""


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Every query inside may take this long. Raises TooSlow; the transaction around it stays usable."""
    try:
        with transaction.atomic():
            before = _set(f"{int(seconds * 1000)}ms")
            yield
            _set(before)
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TooSlow from error
        raise


def _set(timeout: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)", [timeout]
        )
        return str(cursor.fetchone()[0])
