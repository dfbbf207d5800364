"""The JSON of `POST /v1/runs` as a typed run, or which field is wrong. Pure."""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec

from evals.importers.record import Claim, Result, Run, Source, Usage

MAX_REQUEST_BYTES = 16 * 1024**2
MAX_RESULTS = 10_000
CHECKPOINT = re.compile(r"^[^@\s]{1,80}@[0-9]{1,9}$")
DEFAULT_SCORER, DEFAULT_FORMAT = "score", "api"
_PLACE = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<path>.*)`)?\Z", re.DOTALL)
_NAMED_FIELD = re.compile(r"field `([^`]*)`")


class BadRun(ValueError):
    """The request cannot be taken; `field` says which part of it."""

    def __init__(self, message: str, *, field: str | None = None, is_too_large: bool = False) -> None:
        super().__init__(message)
        self.message, self.field, self.is_too_large = message, field, is_too_large


class SourceItem(Source, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which program measured."""

    format: Annotated[str, msgspec.Meta(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9._-]+$")] = DEFAULT_FORMAT


class UsageItem(Usage, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens of one answer; `input` excludes what was read from or written to a cache."""


class ResultItem(Result, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measurement of one answer: a score from 0 to 1 if and only if `status` is "scored"."""

    scorer: str = DEFAULT_SCORER
    usage: UsageItem | None = None


class RunItem(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One model or checkpoint on one benchmark. The same `run_id` again adds the results that are new."""

    benchmark: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    results: list[ResultItem]
    benchmark_version: Annotated[str, msgspec.Meta(max_length=100)] = ""
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=300)] | None = None
    checkpoint: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    source: SourceItem = msgspec.field(default_factory=SourceItem)
    run_id: Annotated[str, msgspec.Meta(min_length=1, max_length=300)] | None = None
    started_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    claims: list[Claim] = msgspec.field(default_factory=list)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


_decoder = msgspec.json.Decoder(RunItem)


def parse_run(body: bytes) -> Run:
    """Raises BadRun. Without a `run_id` and a digest of its source, the body is what makes it the same run again."""
    if len(body) > MAX_REQUEST_BYTES:
        raise BadRun(
            f"more than {MAX_REQUEST_BYTES:,} bytes; send the results in parts with one run_id", is_too_large=True
        )
    item = _decoded(body)
    if len(item.results) > MAX_RESULTS:
        raise BadRun(
            f"{len(item.results):,} results; at most {MAX_RESULTS:,} in a request, the others in more with its run_id",
            field="results",
            is_too_large=True,
        )
    if (item.model is None) == (item.checkpoint is None):
        raise BadRun("name exactly one of model and checkpoint", field="model")
    if item.checkpoint is not None and not CHECKPOINT.match(item.checkpoint):
        raise BadRun(f"found {item.checkpoint[:60]!r}; write <policy>@<version>", field="checkpoint")
    sha256 = item.source.sha256 or hashlib.sha256(body).hexdigest()
    return Run(
        benchmark=item.benchmark,
        benchmark_version=item.benchmark_version,
        model=item.model,
        checkpoint=item.checkpoint,
        source=msgspec.structs.replace(item.source, sha256=sha256),
        run_id=item.run_id,
        started_at=item.started_at,
        claims=item.claims,
        settings=item.settings,
        results=item.results,
    )


def _decoded(body: bytes) -> RunItem:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        message, field = _message_and_field(str(error))
        raise BadRun(message, field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _why_not_json(body, error) from None


def _why_not_json(body: bytes, error: Exception) -> BadRun:
    """NaN and infinities are no JSON, but the sender should hear where they are."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return BadRun(f"the body is not JSON: {error}")
    place = next((at for at, leaf in _leaves(value) if isinstance(leaf, float) and not math.isfinite(leaf)), None)
    return BadRun("not a finite number", field=place) if place else BadRun(f"cannot be read: {error}")


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    pending = [("", value)]
    while pending:
        place, found = pending.pop()
        if isinstance(found, dict):
            pending.extend((f"{place}.{key}" if place else str(key), below) for key, below in found.items())
        elif isinstance(found, list):
            pending.extend((f"{place}[{number}]", below) for number, below in enumerate(found))
        else:
            yield place, found


def _message_and_field(text: str) -> tuple[str, str | None]:
    found = _PLACE.match(text)
    assert found
    named = _NAMED_FIELD.search(found["message"])
    parts = [found["path"], named[1] if named else None]
    return found["message"], ".".join(part for part in parts if part) or None
