"""Keys that lie open in a web page: signals only, from the sites they were made for, at a limited rate.

What a page holds anyone can read, so such a key opens nothing but the door for signals. The rate is counted in the
database, so that all web processes count together.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from django.db import connection

from registry.auth import Caller
from registry.errors import Forbidden, InvalidInput, RateLimited
from registry.models import Scope
from registry.tenancy import tenant

DEFAULT_ITEMS_PER_MINUTE = 600
MAX_ITEMS_PER_MINUTE = 100_000
WINDOW_S = 60


def check(scopes: Sequence[str], origins: Sequence[str], items_per_minute: int | None) -> None:
    """Raises InvalidInput for what no browser key may be."""
    if set(scopes) != {Scope.INGEST}:
        raise InvalidInput("a browser key has the scope ingest and no other", field="scopes")
    for origin in origins:
        try:
            parts = urlsplit(origin)
            _ = parts.port  # reading it checks it
        except ValueError:
            raise InvalidInput(f"found {origin[:80]!r}, which is no address", field="origins") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or origin != f"{parts.scheme}://{parts.netloc}":
            raise InvalidInput(
                f"found {origin[:80]!r}; write a scheme and a host, e.g. https://app.example.com", field="origins"
            )
        if len(origin) > 200 or "@" in parts.netloc:
            raise InvalidInput(f"found {origin[:80]!r}; write a scheme and a host alone", field="origins")
    check_rate(items_per_minute)


def check_rate(items_per_minute: int | None) -> None:
    """Raises InvalidInput."""
    if items_per_minute is None or not 1 <= items_per_minute <= MAX_ITEMS_PER_MINUTE:
        raise InvalidInput(f"give 1 to {MAX_ITEMS_PER_MINUTE:,} items a minute", field="items_per_minute")


def check_origin(caller: Caller, origin: str | None) -> None:
    """Raises Forbidden for a browser key that is used from another site, or from none."""
    if caller.origins and origin not in caller.origins:
        raise Forbidden("this key is for web pages of other sites than this one", field="origin")


def count(caller: Caller, num_items: int) -> None:
    """Count what a browser key sends; raises RateLimited, and counts nothing, where it is too much for a minute."""
    if caller.items_per_minute is None or caller.project_id is None:
        return
    prefix = caller.name.removeprefix("key:")
    with tenant(caller.project_id), connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE registry_apikey SET
              window_items = CASE WHEN is_over THEN 0 ELSE window_items END + %s,
              window_at = CASE WHEN is_over THEN clock_timestamp() ELSE window_at END
            FROM (SELECT id AS key_id,
                         coalesce(window_at < clock_timestamp() - %s * interval '1 second', true) AS is_over
                  FROM registry_apikey WHERE prefix = %s FOR UPDATE) AS found
            WHERE id = key_id AND CASE WHEN is_over THEN 0 ELSE window_items END + %s <= items_per_minute
            """,
            [num_items, WINDOW_S, prefix, num_items],
        )
        if cursor.rowcount != 1:
            raise RateLimited(f"this key may send {caller.items_per_minute:,} items a minute", retry_after_s=WINDOW_S)
