"""The suites of a plan: benchmarks to prove a candidate on, each with its own way of sampling."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST = 8  # suites of a plan; each is answered by up to three checkpoints
REF = re.compile(r".+@\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """One benchmark, and how answers to it are sampled."""

    benchmark: str  # "<name>@<version>"
    sampling: Mapping[str, Any] = field(default_factory=dict)  # on top of the gate's defaults


def suites_from(value: Any) -> tuple[Suite, ...]:
    """From a plan's list, e.g. [{"benchmark": "humaneval@1", "sampling": {"max_tokens": 512}}].

    Raises ValueError saying what is wrong.
    """
    if not isinstance(value, list):
        raise ValueError("give a list of suites")
    if len(value) >= MOST:
        raise ValueError(f"{len(value)} further suites are too many; at most {MOST - 1} stand beside the first")
    suites = tuple(_suite(one) for one in value)
    names = [suite.benchmark for suite in suites]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{twice[0]} is there twice")
    return suites


def _suite(value: Any) -> Suite:
    if not isinstance(value, dict) or value.keys() - {"benchmark", "sampling"}:
        raise ValueError(f'found {str(value)[:80]}; a suite is {{"benchmark": "name@version", "sampling": {{...}}}}')
    name, sampling = value.get("benchmark"), value.get("sampling", {})
    if not (isinstance(name, str) and len(name) <= 220 and REF.fullmatch(name)):
        raise ValueError(f"found {str(name)[:60]!r}; a suite is named <benchmark>@<version>")
    if not isinstance(sampling, dict):
        raise ValueError(f"the sampling of {name} is {type(sampling).__name__}; give an object")
    return Suite(benchmark=name, sampling=sampling)
