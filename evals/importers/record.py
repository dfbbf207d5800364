"""What every importer produces, and what `POST /v1/runs` accepts: runs and battles, one result at a time.

An importer is a module with `FORMAT` (its name), `recognises(path) -> bool` (looks at a few bytes or names, never
raises) and `read(path) -> Iterator[Run | Battles]`. It is pure: no Django, no network, nothing written. It streams:
`results` and `battles` are read once, in file order, and a file of any size needs bounded memory. It raises
`evals.importers.errors.Unreadable` (which names the file, the place and the fix) when the file is not what it claims.
"""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec

Status = Literal["scored", "unscored", "error", "infra"]
Winner = Literal["left", "right", "tie", "both_bad", "invalid", "error"]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Which program wrote the file, in which version, and the file's own digest (lower-case hex)."""

    format: str
    writer_version: str | None = None
    sha256: str | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one answer. `input` counts what was neither read from nor written to a cache; None is unknown.

    `reasoning` is a part of `output`. `processing` is how the request was sent, where that was not at once at the
    standard rate: it chooses the price.
    """

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None
    processing: Literal["batch", "flex", "priority"] | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement of one answer: `score` in [0, 1] if and only if `status` is "scored".

    `raw` keeps the record as the file has it, unknown fields included. `raw_score` is the value before it was brought
    to [0, 1], where that differs (7 of 1..10, "C", a perplexity that has no such scale and so is unscored).
    """

    problem: str
    scorer: str
    status: Status
    repeat: int = 0
    score: float | None = None
    raw_score: Any = None
    explanation: str = ""
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None  # instead of `prompt`, where the question is a chat
    reference: str | None = None
    output: str = ""
    slices: dict[str, str] = msgspec.field(default_factory=dict)
    usage: Usage | None = None
    cost_usd: Decimal | None = None  # as the file reports it; None: not reported
    latency_ms: float | None = None
    raw: dict[str, Any] = msgspec.field(default_factory=dict)


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number that the file states about itself; shown beside what its results give, never in their place."""

    metric: str
    scorer: str
    value: float | None
    stderr: float | None = None
    n: int | None = None
    higher_is_better: bool | None = None
    where: str = ""  # a group, split, filter or reducer


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something a reader of the run should know: what is missing, what is odd, what was assumed (a time zone)."""

    kind: Literal["missing", "odd", "assumed"]
    text: str


class Run(msgspec.Struct, kw_only=True):
    """One model, or one of our checkpoints, on one benchmark. `notes` may grow until `results` is read to its end."""

    benchmark: str
    source: Source
    results: Iterable[Result]
    benchmark_version: str = ""
    model: str | None = None
    checkpoint: str | None = None
    run_id: str | None = None  # the writer's own id; part of what makes a second import change nothing
    started_at: datetime | None = None  # always with a zone
    claims: list[Claim] = msgspec.field(default_factory=list)
    notes: list[Note] = msgspec.field(default_factory=list)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)  # sampling, seeds, epochs, as the file has them
    raw: dict[str, Any] = msgspec.field(default_factory=dict)  # what else the file says of the run as a whole


class Battle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Two answers to one prompt and who won. `preference` is a judge's soft verdict: P(right wins), in [0, 1]."""

    problem: str
    left: str
    right: str
    winner: Winner
    by: Literal["judge", "person", "tests"]
    rater: str = ""  # the judge's or the person's name
    repeat: int = 0
    preference: float | None = None
    left_text: str = ""
    right_text: str = ""
    at: datetime | None = None
    slices: dict[str, str] = msgspec.field(default_factory=dict)
    cost_usd: Decimal | None = None
    raw: dict[str, Any] = msgspec.field(default_factory=dict)


class Battles(msgspec.Struct, kw_only=True):
    """The verdicts of one file."""

    benchmark: str
    source: Source
    battles: Iterable[Battle]
    benchmark_version: str = ""
    run_id: str | None = None
    claims: list[Claim] = msgspec.field(default_factory=list)
    notes: list[Note] = msgspec.field(default_factory=list)
