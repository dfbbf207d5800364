"""Versions of how signals become labels: which one is in force, making a new one, putting one in force.

A version is never changed. Labels name the version that made them; what was labelled keeps its label until something
new is heard about its turn. Inside a tenant; every change is audited.
"""

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from feedback.labels import InvalidRecipe, Recipe, parse_recipe
from feedback.models import LabelRecipe, RecipeActivation
from registry.errors import Conflict, InvalidInput, NotFound
from registry.services import LOOP, audit

KIND = "label recipe"


def current_recipe() -> tuple[int, Recipe]:
    """(version, recipe) in force for the current tenant; the default becomes version 1 on first use."""
    row = recipe_in_force()
    return row.version, Recipe(**row.body)


def recipe_in_force() -> LabelRecipe:
    newest = RecipeActivation.objects.select_related("recipe").order_by("-id").first()
    if newest is not None:
        return newest.recipe
    # Projects from before activations were recorded have one version, and it is the one in force.
    row = LabelRecipe.objects.order_by("version").first()
    if row is None:
        recipe = Recipe()
        row, _ = LabelRecipe.objects.get_or_create(
            version=1, defaults={"body": recipe.to_json(), "digest": recipe.digest}
        )
    return row


def find_recipe(version: int) -> LabelRecipe:
    """Raises NotFound."""
    row = LabelRecipe.objects.filter(version=version).first()
    if row is None:
        raise NotFound(f"no label recipe {version}", field="version")
    return row


def create_recipe(body: Mapping[str, Any], *, actor: str, reason: str = "") -> LabelRecipe:
    """A new version, not yet in force. Raises InvalidInput naming the field, Conflict when a version says the same."""
    recipe = checked(body)
    recipe_in_force()  # the default is version 1
    same = LabelRecipe.objects.filter(digest=recipe.digest).order_by("-version").first()
    if same is not None:
        raise Conflict(f"label recipe {same.version} says the same; nothing was made")
    newest = LabelRecipe.objects.order_by("-version").values_list("version", flat=True)[0]
    try:
        with transaction.atomic():
            row = LabelRecipe.objects.create(version=newest + 1, body=recipe.to_json(), digest=recipe.digest)
    except IntegrityError as error:
        raise Conflict("another version was made at the same time; look at it and try again") from error
    audit("create", KIND, row.version, actor=actor, after=row.body, reason=reason)
    return row


def activate_recipe(version: int, *, actor: str = LOOP, reason: str = "") -> LabelRecipe:
    """Label by this version from now on. Raises NotFound, Conflict when it is in force already."""
    row, before = find_recipe(version), recipe_in_force()
    if row.pk == before.pk:
        raise Conflict(f"label recipe {version} is in force already")
    RecipeActivation.objects.create(recipe=row, actor=actor)
    audit(
        "activate", KIND, version, actor=actor,
        before={"version": before.version}, after={"version": version}, reason=reason,
    )  # fmt: skip
    return row


def checked(body: Mapping[str, Any]) -> Recipe:
    """Raises InvalidInput naming the number that is wrong."""
    try:
        return parse_recipe(body)
    except InvalidRecipe as error:
        raise InvalidInput(error.message, field=error.field) from None
