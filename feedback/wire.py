"""The JSON of `POST /v1/events` as typed turns and signals, or which item is wrong and in which field.

Pure: bytes and a clock reading go in, items and refusals come out. A request whose items are all well-formed is decoded
once, by msgspec; any other is decoded leniently and checked item by item, so that one bad item never loses the rest.
Not here: duplicates and conflicts, which only the ledger can tell (feedback.services.record).
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_ITEMS = 10_000
MAX_REQUEST_BYTES = 16 * 1024 * 1024
MAX_ITEM_BYTES = 1024 * 1024  # of the item as compact JSON
MAX_AHEAD = timedelta(hours=23)
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
MAX_INT_DIGITS = 1000
MAX_DEPTH = 100  # of free-form JSON; what is deeper could be read here and yet overflow the stack further on
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

Id = Annotated[str, Meta(min_length=1, max_length=128)]
Text200 = Annotated[str, Meta(max_length=200)]
Text100 = Annotated[str, Meta(max_length=100)]
Time = Annotated[datetime, Meta(tz=True)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TokenIds = list[Count]
Milliseconds = Annotated[float, Meta(ge=0)]
Source = Literal["production", "import", "simulated", "eval", "judge", "playground"]
Outcome = Literal[
    "accepted", "duplicate", "conflict", "invalid", "rate_limited", "too_old", "too_early", "too_large", "quarantined"
]

SIGNAL_KINDS = frozenset(
    {
        "shown", "ignore", "accept", "reject", "partial_accept", "edit", "correction", "undo", "retry", "copy",
        "persist", "thumbs", "rating", "preference", "comment", "follow_up", "abandon",
    }
)  # fmt: skip
SHARE_KINDS = frozenset({"partial_accept", "persist"})
TEXT_KINDS = frozenset({"edit", "correction", "comment", "follow_up", "preference"})
# Measurements and people looking around: nobody is asked to accept these, so they never settle by silence.
UNSHOWN_SOURCES = frozenset({"eval", "judge", "playground"})
NUMERIC_SAMPLING = ("temperature", "top_p", "top_k", "seed", "max_tokens", "presence_penalty", "frequency_penalty")


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tokens of one exchange; None means the sender did not say."""

    input: Count | None = None  # without cache reads and writes
    cache_read: Count | None = None
    cache_write: Count | None = None
    output: Count | None = None
    reasoning: Count | None = None  # part of output


class _Sent(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"
):
    """An item on the wire: no unknown fields, and a default spelled out means the same as one left out."""


class TurnItem(_Sent, frozen=True, kw_only=True, tag="turn"):
    """One prompt -> completion exchange, as sent.

    Example of alignment: completion_token_ids [3, 4], logprobs [-0.1, -0.7], weight_versions [[0, 2, 3]]: both tokens
    sampled by version 3.
    """

    id: Id
    session: Id
    at: Time
    index: Int32 = 0
    checkpoint: Annotated[str, Meta(pattern=r"^[-a-zA-Z0-9_]{1,60}@[0-9]{1,9}\Z")] | None = None  # <policy>@<version>
    model: Text200 | None = None  # an external model; neither: origin unknown
    group: Id | None = None  # ties the answers to one prompt
    problem: Annotated[str, Meta(max_length=300)] | None = None  # <benchmark>@<version>/<id>
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)] | None = None
    prompt: str | None = None
    completion: str | None = None
    tool_calls: list[Any] = []
    prompt_token_ids: TokenIds | None = None
    completion_token_ids: TokenIds | None = None  # with the sampled end token
    logprobs: list[float] | None = None
    weight_versions: list[tuple[Count, Count, Count]] | None = None  # spans [first, end exclusive, version]
    routed_experts: list[list[list[Count]]] | None = None
    sampling: dict[str, Any] | None = None
    usage: Usage | None = None
    ttft_ms: Milliseconds | None = None
    latency_ms: Milliseconds | None = None
    finish_reason: Annotated[str, Meta(max_length=40)] | None = None
    error: str | None = None
    surface: Text100 | None = None
    language: Annotated[str, Meta(max_length=60)] | None = None
    user: Text200 | None = None
    source: Source = "production"
    metadata: dict[str, Any] = {}

    @property
    def policy(self) -> str | None:
        return self.checkpoint.rpartition("@")[0] if self.checkpoint else None

    @property
    def version(self) -> int | None:
        return int(self.checkpoint.rpartition("@")[2]) if self.checkpoint else None

    @property
    def has_logprobs(self) -> bool:
        """Everything a ratio loss needs is there: ids of prompt and completion, a logprob and a version per token."""
        return bool(self.prompt_token_ids and self.completion_token_ids and self.logprobs and self.weight_versions)

    @property
    def is_shown(self) -> bool:
        """A turn counts as shown when it was returned to a user of the product."""
        return self.source not in UNSHOWN_SOURCES and (self.error is None or bool(self.completion))


class SignalItem(_Sent, frozen=True, kw_only=True, tag="signal"):
    """An event from the product about a turn or a session."""

    id: Id
    kind: Text100
    at: Time
    turn: Id | None = None
    session: Id | None = None
    value: float | None = None
    text: str | None = None
    metric: Text100 | None = None  # what a rating measures
    user: Text200 | None = None
    supersedes: Id | None = None
    source: Source = "production"  # `import` lifts the age limit, as for turns
    metadata: dict[str, Any] = {}


Item = TurnItem | SignalItem


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why one item is not taken; the others of its request are."""

    id: str | None  # as sent, None when there was none to read
    outcome: Outcome
    field: str | None
    message: str


class BadRequest(ValueError):
    """The request as a whole cannot be read: not JSON, or no list `items`."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class TooLargeRequest(BadRequest):
    """More bytes or items than one request may carry."""


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Item]


_decoder = msgspec.json.Decoder(_Request)
_encoder = msgspec.json.Encoder(order="sorted")
_MALFORMED = (ValueError, RecursionError)  # msgspec's errors, and Python's own refusal of endless integers


def parse_request(body: bytes, *, received_at: datetime, max_age: timedelta) -> list[Item | Refusal]:
    """Each item of the request in order, typed or refused; raises BadRequest or TooLargeRequest for the whole of it."""
    if len(body) > MAX_REQUEST_BYTES:
        raise TooLargeRequest(f"the request has more than {MAX_REQUEST_BYTES} bytes; send fewer items at a time")
    items = _typed(body) or _one_by_one(body)
    if len(items) > MAX_ITEMS:
        raise TooLargeRequest(f"the request has {len(items)} items; send at most {MAX_ITEMS}", field="items")
    measure = len(body) > MAX_ITEM_BYTES
    return [
        item if isinstance(item, Refusal) else check(item, received_at=received_at, max_age=max_age, measure=measure)
        for item in items
    ]


def check(item: Item, *, received_at: datetime, max_age: timedelta, measure: bool = True) -> Item | Refusal:
    """The item itself, or the first rule of the contract that it breaks."""
    wrong = _turn_fault(item) if isinstance(item, TurnItem) else _signal_fault(item)
    if wrong:
        return _invalid(item.id, *wrong)
    if item.at > received_at + MAX_AHEAD:
        return Refusal(id=item.id, outcome="too_early", field="at", message="more than 23 hours in the future")
    if item.at < EARLIEST:
        return _invalid(item.id, "at", "before 1970")
    if item.source != "import" and item.at < received_at - max_age:
        message = f"older than {max_age.days} days; history is sent with source import"
        return Refusal(id=item.id, outcome="too_old", field="at", message=message)
    if measure and len(canonical(item)) > MAX_ITEM_BYTES:
        return _too_large(item.id)
    return item


def canonical(item: Item) -> bytes:
    """The item as compact JSON that does not depend on the order of keys or on defaults being spelled out."""
    return _encoder.encode(item)


def body_hash(item: Item) -> bytes:
    """SHA-256 of the canonical JSON: what tells a duplicate from a conflict."""
    return hashlib.sha256(_encoder.encode(item)).digest()


def _is_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    if levels == 0:
        return True
    for below in value.values() if type(value) is dict else value:
        if type(below) in (dict, list) and _is_deep(below, levels - 1):
            return True
    return False


def _typed(body: bytes) -> Sequence[Item] | None:
    """All items at once, or None when one of them is malformed or may hold a character PostgreSQL cannot keep."""
    if b"\\u0000" in body:
        return None
    try:
        return _decoder.decode(body).items
    except _MALFORMED:
        return None


def _one_by_one(body: bytes) -> list[Item | Refusal]:
    try:
        request = json.loads(body, parse_int=_integer)
    except _MALFORMED as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise BadRequest('the body is not an object; send {"items": [...]}')
    if not isinstance(request.get("items"), list):
        raise BadRequest("there is no list `items`", field="items")
    unknown = next((key for key in request if key != "items"), None)
    if unknown is not None:
        raise BadRequest(f"unknown field `{unknown}` beside `items`", field=unknown)
    return [_typed_item(raw) for raw in request["items"]]


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else math.inf


def _typed_item(raw: Any) -> Item | Refusal:
    name = _readable_id(raw)
    try:
        text = json.dumps(raw, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return _invalid(name, None, TOO_DEEP)
    if len(text) > MAX_ITEM_BYTES:
        return _too_large(name)
    for path, value in () if _is_plain(text) else _leaves(raw):
        if isinstance(value, float) and not math.isfinite(value):
            return _invalid(name, path, "not a finite number")
        if isinstance(value, str) and not _is_storable(value):
            return _invalid(name, path, "holds \\u0000 or half of a surrogate pair")
    try:
        return msgspec.convert(raw, Item)
    except _MALFORMED as error:
        return _invalid(name, *_field_and_message(str(error)))


_SUSPECT = re.compile(r"\\u0000|NaN|Infinity|[\ud800-\udfff]")


def _is_plain(text: str) -> bool:
    """Nothing in the item can be unstorable: one fast look that spares most items the walk over their leaves."""
    return _SUSPECT.search(text) is None


def _readable_id(raw: Any) -> str | None:
    name = raw.get("id") if isinstance(raw, dict) else None
    return name[:128] if isinstance(name, str) and _is_storable(name) else None


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _leaves(raw: Any) -> Iterator[tuple[str, Any]]:
    """Every key and plain value below `raw` with its path, without recursion: depth is the sender's choice."""
    pending = [("", raw)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict):
            for key, below in value.items():
                name = f"{path}.{key}" if path else key
                yield path, key
                pending.append((name, below))
        elif isinstance(value, list):
            pending.extend((f"{path}[{place}]", below) for place, below in enumerate(value))
        else:
            yield path, value


_PLACE = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<path>.*)`)?\Z", re.DOTALL)
_NAMED_FIELD = re.compile(r"field `([^`]*)`")


def _field_and_message(text: str) -> tuple[str | None, str]:
    """msgspec's "Object missing required field `id` - at `$.usage`" as ("usage.id", message)."""
    found = _PLACE.match(text)
    assert found
    named = _NAMED_FIELD.search(found["message"])
    parts = [found["path"], named[1] if named else None]
    return ".".join(part for part in parts if part) or None, found["message"]


def _invalid(name: str | None, field: str | None, message: str) -> Refusal:
    return Refusal(id=name, outcome="invalid", field=field, message=message)


def _too_large(name: str | None) -> Refusal:
    return Refusal(id=name, outcome="too_large", field=None, message=f"more than {MAX_ITEM_BYTES} bytes of JSON")


Fault = tuple[str, str]  # field, what was found and what would be right


def _turn_fault(turn: TurnItem) -> Fault | None:
    if (turn.messages is None) == (turn.prompt is None):
        return "messages", "send exactly one of messages and prompt"
    if turn.messages and not all(isinstance(message.get("role"), str) for message in turn.messages):
        return "messages", "every message needs a role"
    for name in ("messages", "tool_calls", "sampling", "metadata"):
        if (value := getattr(turn, name)) and _is_deep(value):
            return name, TOO_DEEP
    if turn.checkpoint and turn.model:
        return "model", "send checkpoint for own weights or model for an external one, not both"
    return _sampling_fault(turn.sampling) or _token_fault(turn)


def _sampling_fault(sampling: dict[str, Any] | None) -> Fault | None:
    for name in NUMERIC_SAMPLING if sampling else ():
        value = sampling.get(name)  # type: ignore[union-attr]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            return f"sampling.{name}", "not a number"
    return None


def _token_fault(turn: TurnItem) -> Fault | None:
    num_tokens = None if turn.completion_token_ids is None else len(turn.completion_token_ids)
    if turn.logprobs is not None and len(turn.logprobs) != num_tokens:
        return "logprobs", f"{len(turn.logprobs)} logprobs for {num_tokens or 'no'} completion tokens; send one each"
    if turn.weight_versions is None:
        return None
    end = 0
    for first, after, _version in turn.weight_versions:
        if first != end or after <= first:
            return "weight_versions", f"a span begins at {first} where {end} is next; spans are contiguous, not empty"
        end = after
    if end != num_tokens:
        return "weight_versions", f"the spans cover {end} of {num_tokens or 'no'} completion tokens"
    return None


def signals_only(item: Item | Refusal) -> Item | Refusal:
    """What a key that lies open in a web page may send: signals of now."""
    if isinstance(item, TurnItem):
        return Refusal(id=item.id, outcome="invalid", field="type", message="a browser key sends signals only")
    if isinstance(item, SignalItem) and item.source != "production":
        return Refusal(id=item.id, outcome="invalid", field="source", message="a browser key's signals are production")
    return item


def _signal_fault(signal: SignalItem) -> Fault | None:
    kind, value = signal.kind, signal.value
    if signal.metadata and _is_deep(signal.metadata):
        return "metadata", TOO_DEEP
    if (signal.turn is None) == (signal.session is None):
        return "turn", "name exactly one of turn and session"
    if kind not in SIGNAL_KINDS and not (kind.startswith("metric:") and len(kind) > len("metric:")):
        return "kind", f"unknown kind {kind!r}; a measurement of your own is metric:<name>"
    if kind in SHARE_KINDS and (value is None or not 0 <= value <= 1):
        return "value", f"{kind} needs a share in 0..1"
    if kind == "thumbs" and value not in (1, -1):
        return "value", "thumbs needs 1 or -1"
    if kind == "rating" and not signal.metric:
        return "metric", "a rating needs the name of what it measures"
    if kind != "rating" and signal.metric is not None:
        return "metric", "only a rating names a metric"
    if (kind == "rating" or kind.startswith("metric:")) and value is None:
        return "value", f"{kind} needs a value"
    if kind in TEXT_KINDS and signal.text is None:
        return "text", f"{kind} needs a text"
    if kind == "preference" and (signal.turn is None or not 0 < len(signal.text or "") <= 128):
        return "text", "a preference of a turn needs the id of the turn it beat"
    return None


def storable(item: Item) -> Item:
    """The same item with U+FFFD for what PostgreSQL cannot keep: for text a model made, which nobody can resend."""
    try:
        if b"\\u0000" not in _encoder.encode(item):
            return item
    except UnicodeEncodeError:
        pass
    return msgspec.convert(_replaced(msgspec.to_builtins(item, builtin_types=(datetime,))), type(item))


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in value)
    if isinstance(value, dict):
        return {_replaced(key): _replaced(below) for key, below in value.items()}
    return [_replaced(below) for below in value] if isinstance(value, list) else value
