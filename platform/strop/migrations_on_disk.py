"""Which migrations this code has, read from its folders: also where Django is not set up or the database is away."""

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

ROOMS = ("jobs", "registry", "feedback", "evals", "rl_online")


def known_migrations(among: Collection[str] = ()) -> set[str]:
    """`<app>.<name>` of our rooms; those `among` the given ones that belong to other apps are taken as known."""
    found = {name for name in among if name.split(".")[0] not in ROOMS}
    for room in ROOMS:
        spec = find_spec(f"{room}.migrations")
        for folder in (spec.submodule_search_locations or []) if spec else []:
            found |= {f"{room}.{path.stem}" for path in Path(folder).glob("[0-9]*.py")}
    return found


def unknown_migrations(applied: Collection[str]) -> list[str]:
    """Applied migrations that this code does not have: the database was used by a newer Strop."""
    return sorted(set(applied) - known_migrations(applied))
