"""docs/statistics.md names what there is, and only that."""

import importlib
import re
from pathlib import Path

import pytest

from evals.statistics.estimate import Kind

CHECKOUT = Path(__file__).resolve().parents[3]
PAGE = (CHECKOUT / "docs" / "statistics.md").read_text()
MODULES = sorted(path.stem for path in (CHECKOUT / "evals" / "statistics").glob("[a-z]*.py"))
NAMED = re.findall(r"`([a-z_]+)\.([a-z_]+)`", PAGE)


def test_every_kind_of_interval_is_explained():
    section = PAGE.split("## Kinds of interval")[1].split("## Numbers")[0]
    first_cells = " ".join(row.split("|")[1] for row in section.splitlines() if row.startswith("| `"))
    assert set(re.findall(r"`([^`]+)`", first_cells)) == set(Kind)


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_every_named_function_exists(module, name):
    assert callable(getattr(importlib.import_module(f"evals.statistics.{module}"), name))


def test_every_module_that_computes_a_number_is_named():
    assert {module for module, _ in NAMED} == set(MODULES) - {"estimate", "battles", "distributions"}
