"""Unsafe deployments as system checks: `strop up --production` runs them with `check --deploy` and stops on any.

Tags: deploy (settings) and database (roles). Each has an id, what was found and what to set instead.
"""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

MIN_SECRET = 40  # characters; `python -c "import secrets; print(secrets.token_urlsafe(48))"` gives 64


def error(number: int, message: str, hint: str) -> CheckMessage:
    return Error(message, hint=hint, id=f"strop.E{number:03}")


@register(Tags.security, deploy=True)
def check_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    return [
        error(number, message, hint)
        for number, is_unsafe, message, hint in (
            (1, settings.DEBUG, "STROP_DEBUG is on: error pages show code and settings.", "Unset STROP_DEBUG."),
            (
                2,
                len(settings.SECRET_KEY) < MIN_SECRET or "insecure" in settings.SECRET_KEY,
                f"STROP_SECRET_KEY has {len(settings.SECRET_KEY)} characters or is a sample value.",
                f"Set {MIN_SECRET} random characters or more, or unset it: one is made in the home folder.",
            ),
            (
                3,
                any(host in ("*", "") or host.startswith(".") for host in settings.ALLOWED_HOSTS),
                f"STROP_ALLOWED_HOSTS={','.join(settings.ALLOWED_HOSTS)} lets a request choose its own host name.",
                "Name each host, e.g. STROP_ALLOWED_HOSTS=strop.example.org",
            ),
            (
                4,
                not set(settings.ALLOWED_HOSTS) - set(settings.LOOPBACK),
                "STROP_ALLOWED_HOSTS names no host: people's requests are refused.",
                "Name each host, e.g. STROP_ALLOWED_HOSTS=strop.example.org",
            ),
            (
                5,
                not (settings.SESSION_COOKIE_SECURE and settings.CSRF_COOKIE_SECURE),
                "Cookies also travel over plain HTTP.",
                "Set STROP_PRODUCTION=1 (strop up --production does).",
            ),
            (
                6,
                not settings.PUBLIC_URL.startswith("https://"),
                f"STROP_PUBLIC_URL is {settings.PUBLIC_URL}; sign-in links and keys would travel in the clear.",
                "Set the https:// address people use, e.g. STROP_PUBLIC_URL=https://strop.example.org",
            ),
            (
                7,
                not settings.CSRF_TRUSTED_ORIGINS
                or any(not origin.startswith("https://") or "*" in origin for origin in settings.CSRF_TRUSTED_ORIGINS),
                f"STROP_CSRF_TRUSTED_ORIGINS is {','.join(settings.CSRF_TRUSTED_ORIGINS) or 'empty'}.",
                "List the https:// origins of the pages, without wildcards, e.g. https://strop.example.org",
            ),
            (
                8,
                settings.SANDBOX_ALLOW_NONE,
                "STROP_SANDBOX_ALLOW_NONE lets model output run as code without isolation.",
                "Unset it; where neither Landlock nor bubblewrap works, such scores stay unscored.",
            ),
        )
        if is_unsafe
    ]


@register(Tags.database)
def check_role(app_configs: Any, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """The app's role must not be one that row-level security does not bind: a superuser, BYPASSRLS, or the owner."""
    if not databases or "default" not in databases:
        return []
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT current_user, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
        role, is_superuser, bypasses = cursor.fetchone()
        cursor.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tableowner = current_user LIMIT 1"
        )
        owned = cursor.fetchone()
    hint = "Give DATABASE_URL a role made with NOSUPERUSER NOBYPASSRLS and migrate with DATABASE_OWNER_URL."
    problems = []
    if is_superuser or bypasses:
        problems.append(error(20, f"Database role {role} is not bound by row-level security.", hint))
    if owned:
        problems.append(error(21, f"Database role {role} owns table {owned[0]} and could lift its protection.", hint))
    return problems
