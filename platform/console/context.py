"""What every page's frame needs: where it stands, who looks at it, what they may do."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from console.reads.flagged import num_open_flags
from registry.models import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One entry of the sidebar. It is shown once its address exists."""

    url: str  # name of the address, without the app
    title: str
    icon: str  # id in icons.svg
    key: str  # g and then this letter leads there
    also: tuple[str, ...] = ()  # addresses that belong to it


SETTINGS = (
    "members", "member-invite", "member-link", "keys", "key-create", "policies", "policy-add", "notifications",
    "channel", "channel-create", "audit", "password", "system",
)  # fmt: skip
RECIPE_PAGES = ("label-recipe", "label-recipe-new", "reward-spec", "reward-spec-new")
SIDEBAR: tuple[tuple[str, tuple[Place, ...]], ...] = (
    (
        "Home",
        (
            Place(url="overview", title="Overview", icon="gauge", key="o"),
            Place(url="onboarding", title="First steps", icon="steps", key="b", also=("onboarding-key",)),
        ),
    ),
    (
        "Observe",
        (
            Place(url="sessions", title="Sessions", icon="chat", key="s", also=("session",)),
            Place(url="turns", title="Turns", icon="turn", key="t", also=("turn",)),
            Place(url="signals", title="Signals", icon="signal", key="i"),
            Place(url="ingestion", title="Ingestion", icon="inbox", key="n"),
        ),
    ),
    (
        "Review",
        (
            Place(url="flagged", title="Flagged", icon="flag", key="f"),
            Place(url="review", title="Review", icon="check", key="r", also=("review-item", "review-agreement")),
        ),
    ),
    (
        "Evaluate",
        (
            Place(
                url="evals", title="Benchmark runs", icon="columns", key="l",
                also=(
                    "eval-run", "eval-problem", "eval-uploaded", "eval-start", "leaderboard", "benchmarks",
                    "benchmark-overlap",
                ),
            ),
            Place(url="compare", title="Compare", icon="compare", key="m"),
            Place(url="win-rates", title="Win rates", icon="grid", key="w", also=("comparisons", "comparison")),
            Place(url="judges", title="Judges", icon="scale", key="j", also=("judge", "gold")),
        ),
    ),
    (
        "Train",
        (
            Place(
                url="updates",
                title="Updates",
                icon="bolt",
                key="u",
                also=("update", "update-trigger", "update-samples", "update-compare", "dry-run", "dry-run-start"),
            ),
            Place(url="checkpoints", title="Checkpoints", icon="branch", key="c", also=("checkpoint",)),
            Place(url="gates", title="Gates", icon="gate", key="v", also=("gate", "gate-problems")),
            Place(url="deployments", title="Deployments", icon="rocket", key="d"),
            Place(url="engines", title="Engines", icon="cpu", key="e"),
            Place(url="recipes", title="Recipes", icon="recipe", key="p", also=RECIPE_PAGES),
        ),
    ),
    (
        "Insight",
        (
            Place(
                url="costs",
                title="Costs",
                icon="coin",
                key="k",
                also=("prices", "price-add", "cost-quality", "budgets", "budget-add", "budget-change"),
            ),
            Place(url="alerts", title="Alerts", icon="bell", key="a"),
        ),
    ),
    ("Settings", (Place(url="settings", title="Settings", icon="gear", key="x", also=SETTINGS),)),
)

REFRESH = (
    ("off", "Refresh off"),
    ("10s", "every 10 s"),
    ("30s", "every 30 s"),
    ("1m", "every minute"),
    ("live", "live"),
)


@cache
def sidebar() -> tuple[tuple[str, tuple[Place, ...]], ...]:
    """The groups that have a place, and in each the places whose address exists."""
    groups = ((group, tuple(place for place in places if _stands(place))) for group, places in SIDEBAR)
    return tuple((group, places) for group, places in groups if places)


def places() -> list[Place]:
    return [place for _, group in sidebar() for place in group]


def console(request: HttpRequest) -> dict[str, Any]:
    member = getattr(request, "member", None)
    if member is None:
        return {}
    match = request.resolver_match
    return {
        "member": member,
        "project": member.project,
        "memberships": getattr(request, "memberships", []),
        "may": {role: Role(member.role).may(Role(role)) for role in Role.values},
        "sidebar": sidebar(),
        "here": match.url_name if match else "",
        "num_open_flags": num_open_flags(),
        "public_url": settings.PUBLIC_URL,
        "code_version": settings.CODE_VERSION,
        "zone": timezone.get_current_timezone_name(),
        "is_peek": is_peek(request),
        "refresh": request.GET.get("refresh", ""),
        "refresh_choices": REFRESH,
        "root": "peek.html" if is_peek(request) else "bare.html",
    }


def is_peek(request: HttpRequest) -> bool:
    """`?peek=1`: the page's heading and content only, for the panel at the side of a list."""
    return request.GET.get("peek") == "1"


def _stands(place: Place) -> bool:
    try:
        reverse(f"console:{place.url}", args=["any"])
    except NoReverseMatch:
        return False
    return True
