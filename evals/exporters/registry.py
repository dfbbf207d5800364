"""Formats a run can be exported in."""

from importlib import import_module
from typing import cast

from evals.exporters.exported import Exporter

MODULES = {"every-eval-ever": "every_eval_ever", "lm-eval": "lm_eval", "inspect": "inspect_log"}


def exporter_named(name: str) -> Exporter:
    """`name` is one of MODULES."""
    return cast(Exporter, import_module(f"evals.exporters.{MODULES[name]}"))
