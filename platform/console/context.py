"""What every page's frame needs: where it stands, who looks at it, what they may do."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from console.reads.flagged import num_open_flags
from registry.models import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One entry of the sidebar."""

    url: str  # name of the address, without the app
    title: str
    icon: str  # id in icons.svg
    also: tuple[str, ...] = ()  # addresses that belong to it


SIDEBAR: tuple[tuple[str, tuple[Place, ...]], ...] = (
    ("Home", (Place(url="overview", title="Overview", icon="gauge"),)),
    ("Observe", (Place(url="sessions", title="Sessions", icon="chat", also=("session",)),)),
    ("Review", (Place(url="flagged", title="Flagged", icon="flag"),)),
    (
        "Train",
        (
            Place(url="updates", title="Updates", icon="bolt", also=("update", "update-trigger")),
            Place(url="checkpoints", title="Checkpoints", icon="branch", also=("checkpoint",)),
        ),
    ),
)


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
        "sidebar": SIDEBAR,
        "here": match.url_name if match else "",
        "num_open_flags": num_open_flags(),
        "public_url": settings.PUBLIC_URL,
    }
