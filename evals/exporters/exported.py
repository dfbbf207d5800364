"""A stored run as exporters see it. Pure: what is in it was read by whoever asks for the export."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import msgspec

from evals.importers.record import Claim, Result, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What the results of one scorer give; see evals.selectors_runs.ByScorer."""

    scorer: str
    num_problems: int  # n of mean and stderr
    num_unscored: int  # answers that have no score, for whatever reason
    mean: float | None
    stderr: float | None
    is_binary: bool  # every problem is 0 or 1


@dataclass(frozen=True, kw_only=True)
class Exported:
    """One run. `results` may be iterated more than once, in the order of problems."""

    id: str
    benchmark: str
    benchmark_version: str
    model: str
    writer: str  # the program that measured
    writer_version: str | None
    began_at: datetime | None  # None: nobody said
    exported_at: datetime
    project: str
    measured: list[Measured]
    state: str = "done"  # running, failed or cancelled: not all that was asked is here
    error: str = ""  # why it failed
    claims: list[Claim] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    results: Iterable[Result] = ()

    def claim_of(self, scorer: str) -> Claim | None:
        return next((claim for claim in self.claims if claim.scorer == scorer), None)


class Exporter(Protocol):
    """A format: the files of a run, the main document first, each as (name, chunks of its bytes)."""

    def files(self, run: Exported) -> Iterator[tuple[str, Iterator[bytes]]]: ...


def encode(value: Any) -> bytes:
    """Strict JSON: msgspec writes None where a float is not finite."""
    return msgspec.json.encode(value)


def line(value: Any) -> bytes:
    return encode(value) + b"\n"


def chat_text(result: Result) -> str:
    """The question as one text; "" where the run came without it."""
    if result.prompt is not None:
        return result.prompt
    return "\n\n".join(f"{message.get('role')}: {message.get('content')}" for message in result.messages or ())


def total_tokens(usage: Usage) -> int:
    return sum(number or 0 for number in (usage.input, usage.cache_read, usage.cache_write, usage.output))


def safe_name(text: str) -> str:
    """A name that can be part of a file's name on every system, as the lm-evaluation-harness writes it."""
    kept = "".join("_" if character in '<>:"/\\|?* \t\r\n\0' else character for character in text)
    return kept.strip(".")[:100] or "unnamed"
