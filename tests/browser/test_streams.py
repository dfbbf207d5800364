"""Many readers of one live page against the real web process."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from django.db import connection

from tests.browser.conftest import SESSION_COOKIE_NAME, session_of

pytestmark = pytest.mark.django_db(transaction=True)
NUM_READERS = 100
MAX_CONNECTIONS = 20  # the pool of the web process (STROP_DB_POOL_SIZE); without sharing, each reader would hold one


def test_a_hundred_readers_hold_no_connections_of_their_own(site, owner, loop):
    cookies = {SESSION_COOKIE_NAME: session_of("owner")}
    url = f"{site}/p/editor/updates/{loop.updates[-1].id}/live"

    async def read(client: httpx.AsyncClient, all_open: asyncio.Barrier, counted: asyncio.Future[int]) -> None:
        async with client.stream("GET", url) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    break
            if await all_open.wait() == 0:
                counted.set_result(await asyncio.to_thread(num_connections))
            await counted

    async def crowd() -> int:
        all_open, counted = asyncio.Barrier(NUM_READERS), asyncio.get_running_loop().create_future()
        limits = httpx.Limits(max_connections=NUM_READERS)
        async with httpx.AsyncClient(cookies=cookies, timeout=120, limits=limits) as client:
            await asyncio.gather(*[read(client, all_open, counted) for _ in range(NUM_READERS)])
        return counted.result()

    with ThreadPoolExecutor(1) as thread:  # Playwright's own loop runs in this one
        assert thread.submit(asyncio.run, crowd()).result() <= MAX_CONNECTIONS + NUM_OWN


NUM_OWN = 4  # connections of this process, of this test's thread and of the count itself


def num_connections() -> int:
    """Backends of the app's role, without the one that asks."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()")
        found = cursor.fetchone()[0]
    connection.close()
    return found
