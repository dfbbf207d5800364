"""Give every external model that a project uses the prices of a public list, as cards with their source and date.

A model of one's own hardware that bears a public name gets a card too: an own card takes its place.
"""

from collections.abc import Iterable
from uuid import UUID

from django.utils import timezone

from registry import list_prices, price_cards
from registry.services import all_projects
from registry.tenancy import tenant
from rl_online.spending.models_used import models_used

LOOK_EVERY_S = 120
_looked_up: set[tuple[UUID, str]] = set()  # by this process: the list is read again only when Strop was started anew


def look_all() -> None:
    for project in all_projects():
        with tenant(project.id):
            asked = models_to_ask(project.id)
            copy_lists(asked)
        _looked_up.update((project.id, model) for model in asked)


def models_to_ask(project_id: UUID) -> list[str]:
    """Those in use, and those that others measure themselves against, of which this process has not asked yet."""
    return [one for one in {*list_prices.REFERENCES, *models_used()} if (project_id, one) not in _looked_up]


def copy_lists(models: Iterable[str]) -> int:
    """Returns the number of new cards. Inside a tenant."""
    added = 0
    for model in models:
        found = list_prices.listed(model)
        if found is not None:
            added += len(price_cards.adopt(model, found, now=timezone.now()))
    return added
