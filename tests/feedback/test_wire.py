"""The JSON of events: what is taken, what is refused, and which field is named."""

import contextlib
import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback import wire
from feedback.wire import Refusal, SignalItem, TurnItem

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
YEAR = timedelta(days=400)


def turn(**fields) -> dict:
    base = {"type": "turn", "id": "t", "session": "s", "at": "2026-11-30T06:00:00Z", "prompt": "1 + 1 = "}
    return {name: value for name, value in (base | fields).items() if value is not ...}


def signal(**fields) -> dict:
    base = {"type": "signal", "id": "g", "turn": "t", "kind": "accept", "at": "2026-11-30T06:00:03Z"}
    return {name: value for name, value in (base | fields).items() if value is not ...}


def parse(*items, body: bytes | None = None) -> list:
    body = json.dumps({"items": items}).encode() if body is None else body
    return wire.parse_request(body, received_at=NOW, max_age=YEAR)


def refusal(item: dict) -> tuple[str, str | None]:
    """(outcome, field) of an item that must be refused while its neighbour is taken."""
    refused, neighbour = parse(item, signal(id="neighbour"))
    assert isinstance(neighbour, SignalItem)
    assert isinstance(refused, Refusal), refused
    return refused.outcome, refused.field


def test_the_contracts_example_is_taken_whole():
    item = turn(
        index=0, checkpoint="editor@3", model=None, group=None, problem=None, prompt=None,
        messages=[{"role": "user", "content": "..."}], completion="a + 2", tool_calls=[],
        prompt_token_ids=[1, 2], completion_token_ids=[3, 4], logprobs=[-0.1, -0.7], weight_versions=[[0, 2, 3]],
        routed_experts=None, sampling={"temperature": 1.0, "top_k": 0, "logprobs_mode": "processed"},
        usage={"input": 2, "cache_read": 0, "cache_write": 0, "output": 2, "reasoning": 0}, ttft_ms=40, latency_ms=182,
        finish_reason="stop", error=None, surface="completion", language="python", user="u-17", source="production",
        metadata={},
    )  # fmt: skip
    parsed, heard = parse(item, signal(value=None, text=None, user="u-17", supersedes=None, metadata={}))
    assert isinstance(parsed, TurnItem)
    assert (parsed.policy, parsed.version, parsed.has_logprobs, parsed.is_shown) == ("editor", 3, True, True)
    assert isinstance(heard, SignalItem)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": ...}, "id"),
        ({"id": "x" * 129}, "id"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"session": ...}, "session"),
        ({"at": "2026-11-30T06:00:00"}, "at"),
        ({"at": "yesterday"}, "at"),
        ({"prompt": None}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages"),
        ({"prompt": None, "messages": []}, "messages"),
        ({"prompt": None, "messages": [{"content": "x"}]}, "messages"),
        ({"checkpoint": "editor@3", "model": "gpt"}, "model"),
        ({"checkpoint": "editor"}, "checkpoint"),
        ({"completion_token_ids": [1, 2], "logprobs": [-0.5]}, "logprobs"),
        ({"logprobs": [-0.5]}, "logprobs"),
        ({"completion_token_ids": [1, 2], "weight_versions": [[0, 1, 3]]}, "weight_versions"),
        ({"completion_token_ids": [1, 2], "weight_versions": [[0, 1, 3], [0, 2, 3]]}, "weight_versions"),
        ({"completion_token_ids": [1, 2], "weight_versions": [[0, 2, 3], [2, 2, 4]]}, "weight_versions"),
        ({"completion_token_ids": [1, -2]}, "completion_token_ids[1]"),
        ({"completion_token_ids": [1, 2**31]}, "completion_token_ids[1]"),
        ({"usage": {"input": -1}}, "usage.input"),
        ({"usage": {"tokens": 1}}, "usage.tokens"),
        ({"latency_ms": -1}, "latency_ms"),
        ({"latency_ms": "NaN"}, "latency_ms"),
        ({"source": "web"}, "source"),
        ({"sampling": {"temperature": "hot"}}, "sampling.temperature"),
        ({"colour": "red"}, "colour"),
        ({"type": "span"}, "type"),
        ({"type": ...}, "type"),
        ({"at": "1969-12-31T00:00:00Z", "source": "import"}, "at"),
    ],
)
def test_a_bad_turn_is_invalid_and_its_field_is_named(fields, field):
    assert refusal(turn(**fields)) == ("invalid", field)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "like"}, "kind"),
        ({"kind": "metric:"}, "kind"),
        ({"session": "s"}, "turn"),
        ({"turn": None}, "turn"),
        ({"turn": "x" * 129}, "turn"),
        ({"kind": "partial_accept"}, "value"),
        ({"kind": "partial_accept", "value": 1.01}, "value"),
        ({"kind": "persist", "value": -0.1}, "value"),
        ({"kind": "thumbs", "value": 0}, "value"),
        ({"kind": "thumbs", "value": True}, "value"),
        ({"kind": "rating", "value": 4}, "metric"),
        ({"kind": "rating", "metric": "helpful"}, "value"),
        ({"kind": "accept", "metric": "helpful"}, "metric"),
        ({"kind": "metric:tests"}, "value"),
        ({"kind": "edit"}, "text"),
        ({"kind": "preference", "text": ""}, "text"),
        ({"kind": "preference", "text": "x", "turn": None, "session": "s"}, "text"),
        ({"rating": 4}, "rating"),
    ],
)
def test_a_bad_signal_is_invalid_and_its_field_is_named(fields, field):
    assert refusal(signal(**fields)) == ("invalid", field)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "partial_accept", "value": 0},
        {"kind": "thumbs", "value": -1},
        {"kind": "rating", "value": 4, "metric": "helpful"},
        {"kind": "metric:tests", "value": 0.5},
        {"kind": "edit", "text": ""},
        {"kind": "preference", "text": "t2"},
        {"kind": "comment", "text": "nice", "turn": None, "session": "s"},
        {"turn": "00000000-0000-0000-0000-000000000000"},
        {"turn": "../../etc/passwd"},
    ],
)
def test_unusual_but_allowed_signals_are_taken(fields):
    assert isinstance(parse(signal(**fields))[0], SignalItem)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999", "9" * 5000])
@pytest.mark.parametrize("where", ['"value": %s', '"metadata": {"deep": [{"x": %s}]}'])
def test_one_number_that_is_not_finite_costs_only_its_item(number, where):
    bad = json.dumps(signal(kind="comment", text="x"))[:-1] + "," + where % number + "}"
    refused, taken = parse(body=f'{{"items": [{bad}, {json.dumps(signal())}]}}'.encode())
    assert (refused.outcome, refused.id) == ("invalid", "g")
    assert refused.field in ("value", "metadata.deep[0].x")
    assert isinstance(taken, SignalItem)


@pytest.mark.parametrize("text", [r"\u0000", r"\ud800", r"a\udfff", r"\ud800\ud800"])
def test_text_that_postgresql_cannot_hold_costs_only_its_item(text):
    bad = json.dumps(signal(kind="comment"))[:-1] + f', "text": "{text}"}}'
    refused, taken = parse(body=f'{{"items": [{bad}, {json.dumps(signal())}]}}'.encode())
    assert (refused.outcome, refused.field) == ("invalid", "text")
    assert isinstance(taken, SignalItem)


def test_an_escaped_backslash_before_u0000_is_plain_text():
    assert isinstance(parse(signal(kind="comment", text="\\u0000"))[0], SignalItem)


def test_surrogate_pairs_are_ordinary_characters():
    (taken,) = parse(body=json.dumps({"items": [signal(kind="comment", text="한국어 🙂")]}).encode())
    assert taken.text == "한국어 🙂"


def test_an_id_that_cannot_be_stored_is_not_repeated():
    body = rb'{"items": [{"type": "signal", "id": "\ud800"}]}'
    assert parse(body=body)[0].id is None


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b"{}", b'{"items": {}}', b'{"items": null}', b'{"items": [], "x": 1}', b"\xff",
     b'{"items": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}"],
)  # fmt: skip
def test_what_is_not_a_list_of_items_is_refused_whole(body):
    with pytest.raises(wire.BadRequest):
        parse(body=body)


def test_no_items_at_all_is_an_empty_answer():
    assert parse() == []


def test_things_that_are_not_objects_are_refused_one_by_one():
    refused = parse(3, None, "x", [], signal())[:4]
    assert [(item.outcome, item.id) for item in refused] == [("invalid", None)] * 4


def test_ten_thousand_items_are_taken_and_one_more_is_too_large():
    body = json.dumps({"items": [signal()] * 10_001}).encode()
    with pytest.raises(wire.TooLargeRequest):
        parse(body=body)
    assert len(parse(*[signal()] * 10_000)) == 10_000


def test_an_item_of_one_mebibyte_is_taken_and_one_byte_more_is_too_large():
    room = wire.MAX_ITEM_BYTES - len(wire.canonical(parse(turn(completion="x"))[0])) + 1
    fits, over = parse(turn(completion="x" * room), turn(id="u", completion="x" * (room + 1)))
    assert isinstance(fits, TurnItem)
    assert (over.outcome, over.id) == ("too_large", "u")


def test_a_request_of_more_than_sixteen_mebibytes_is_refused_whole():
    with pytest.raises(wire.TooLargeRequest):
        parse(body=b" " * (wire.MAX_REQUEST_BYTES + 1))


@pytest.mark.parametrize(
    ("at", "outcome"),
    [
        (NOW + timedelta(hours=23), None),
        (NOW + timedelta(hours=23, seconds=1), "too_early"),
        (NOW - YEAR, None),
        (NOW - YEAR - timedelta(seconds=1), "too_old"),
    ],
)
def test_items_far_from_now_are_refused_by_age(at, outcome):
    (item,) = parse(turn(at=at.isoformat()))
    assert getattr(item, "outcome", None) == outcome


def test_imports_may_be_of_any_age():
    old = {"at": "2001-01-01T00:00:00Z", "source": "import"}
    assert all(not isinstance(item, Refusal) for item in parse(turn(**old), signal(**old)))


def test_the_body_hash_ignores_key_order_and_spelled_out_defaults():
    plain = turn(metadata={"a": 1, "b": {"c": 2, "d": 3}})
    other = dict(reversed(plain.items())) | {"metadata": {"b": {"d": 3, "c": 2}, "a": 1}, "error": None, "index": 0}
    one, two, three = parse(plain, other, turn(metadata={"a": 2}))
    assert wire.body_hash(one) == wire.body_hash(two) != wire.body_hash(three)


def test_the_body_hash_is_pinned():
    # Stored hashes must keep their meaning: a resent item would become a conflict.
    body = b'{"at":"2026-11-30T06:00:03Z","id":"g","kind":"accept","turn":"t","type":"signal"}'
    assert wire.body_hash(parse(signal())[0]) == hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    ("fields", "shown"),
    [({}, True), ({"source": "eval"}, False), ({"source": "judge"}, False), ({"source": "playground"}, False),
     ({"error": "engine died"}, False), ({"error": "engine died", "completion": "a +"}, True)],
)  # fmt: skip
def test_a_turn_is_shown_when_it_was_returned_to_a_user(fields, shown):
    assert parse(turn(**fields))[0].is_shown is shown


def test_text_of_a_model_that_cannot_be_stored_is_replaced():
    made = TurnItem(id="t", session="s", at=NOW, prompt="a\0", completion="\ud800b", metadata={"k": ["\0"]})
    kept = wire.storable(made)
    assert (kept.prompt, kept.completion, kept.metadata) == ("a\ufffd", "\ufffdb", {"k": ["\ufffd"]})
    assert wire.storable(kept) is kept


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["turn", "signal", "t"])
names = st.sampled_from([*wire.TurnItem.__struct_fields__, *wire.SignalItem.__struct_fields__, "type"]) | st.text()
values = st.recursive(scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=4))


@given(st.lists(values | st.dictionaries(names, values).map(lambda fields: turn(**fields))))
def test_whatever_is_sent_every_item_has_one_answer(items):
    answers = parse(body=json.dumps({"items": items}).encode())
    assert len(answers) == len(items)
    for answer in answers:
        if not isinstance(answer, Refusal):
            assert b"NaN" not in wire.canonical(answer) and wire.storable(answer) is answer


@given(st.binary(max_size=60))
def test_no_bytes_are_an_error_of_ours(body):
    with contextlib.suppress(wire.BadRequest):
        assert isinstance(parse(body=body), list)


def test_an_item_far_too_large_beside_a_bad_one_is_too_large():
    huge, bad = parse(turn(metadata={"x": [0] * 600_000}), signal(kind="like"))
    assert (huge.outcome, bad.outcome) == ("too_large", "invalid")


def nested(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels - 1):
        value = {"x": value}
    return value


@pytest.mark.parametrize("levels", [101, 300, 900])
@pytest.mark.parametrize("beside", [{}, {"kind": "like"}])
def test_nesting_deeper_than_a_hundred_levels_costs_only_its_item(levels, beside):
    deep, other = parse(turn(metadata=nested(levels)), signal(**beside))
    assert (deep.outcome, deep.id) == ("invalid", "t")
    assert getattr(other, "outcome", "accepted") == ("invalid" if beside else "accepted")


def test_nesting_of_a_hundred_levels_is_taken():
    assert isinstance(parse(turn(metadata=nested(100)))[0], TurnItem)
