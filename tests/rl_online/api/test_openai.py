"""What a request may say, and OpenAI's shapes."""

import pytest

from registry.errors import Conflict, Forbidden, InvalidInput, RateLimited, Unavailable
from rl_online.api import openai
from rl_online.api.openai import Api, parse_ask
from rl_online.serving.protocol import TokenDetail, TokenLogprob

CHAT = {"model": "editor", "messages": [{"role": "user", "content": "hi"}]}
TEXT = {"model": "editor", "prompt": "def f("}


def test_unset_temperature_and_top_p_mean_one():
    ask = parse_ask(Api.CHAT, CHAT)
    assert (ask.temperature, ask.top_p, ask.top_k, ask.n, ask.stream) == (1.0, 1.0, 0, 1, False)
    assert (ask.max_tokens, ask.seed, ask.stop, ask.top_logprobs) == (None, None, (), None)


def test_null_means_absent():
    ask = parse_ask(Api.CHAT, CHAT | {"temperature": None, "stop": None, "tools": None, "logit_bias": None})
    assert ask.temperature == 1.0


def test_zero_is_not_absent():
    assert parse_ask(Api.CHAT, CHAT | {"temperature": 0}).temperature == 0.0


@pytest.mark.parametrize("stop", ["\n", ["\n"]])
def test_stop_is_a_text_or_a_list(stop):
    assert parse_ask(Api.TEXT, TEXT | {"stop": stop}).stop == ("\n",)


def test_max_completion_tokens_wins_over_max_tokens():
    assert parse_ask(Api.CHAT, CHAT | {"max_tokens": 5, "max_completion_tokens": 7}).max_tokens == 7


def test_text_parts_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ask = parse_ask(Api.CHAT, {"model": "editor", "messages": [{"role": "user", "content": parts}]})
    assert ask.messages == [{"role": "user", "content": "ab"}]


@pytest.mark.parametrize(
    ("api", "change", "field"),
    [
        (Api.CHAT, {"model": ""}, "model"),
        (Api.CHAT, {"messages": []}, "messages"),
        (Api.CHAT, {"messages": ["hi"]}, "messages[0]"),
        (Api.CHAT, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            Api.CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0]",
        ),
        (Api.CHAT, {"messages": [{"role": "user", "content": "a\0b"}]}, "messages"),
        (Api.CHAT, {"temperature": 2.1}, "temperature"),
        (Api.CHAT, {"temperature": float("nan")}, "temperature"),
        (Api.CHAT, {"temperature": "hot"}, "temperature"),
        (Api.CHAT, {"top_p": 0}, "top_p"),
        (Api.CHAT, {"n": 0}, "n"),
        (Api.CHAT, {"n": True}, "n"),
        (Api.CHAT, {"n": 17}, "n"),
        (Api.CHAT, {"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        (Api.CHAT, {"stop": [""]}, "stop"),
        (Api.CHAT, {"max_tokens": 0}, "max_tokens"),
        (Api.CHAT, {"top_logprobs": 3}, "top_logprobs"),
        (Api.CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (Api.CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
        (Api.CHAT, {"stream": "yes"}, "stream"),
        (Api.CHAT, {"presence_penalty": 0.5}, "presence_penalty"),
        (Api.CHAT, {"logit_bias": {"5": 1}}, "logit_bias"),
        (Api.CHAT, {"response_format": {"type": "json_object"}}, "response_format"),
        (Api.CHAT, {"audio": {}}, "audio"),
        (Api.CHAT, {"tools": "all"}, "tools"),
        (Api.CHAT, {"metadata": {"a": 1}}, "metadata.a"),
        (Api.CHAT, {"prompt": "x"}, "prompt"),
        (Api.TEXT, {"messages": CHAT["messages"]}, "messages"),
        (Api.TEXT, {"prompt": ["a", "b"]}, "prompt"),
        (Api.TEXT, {"prompt": ""}, "prompt"),
        (Api.TEXT, {"logprobs": 6}, "logprobs"),
        (Api.TEXT, {"echo": True}, "echo"),
        (Api.TEXT, {"suffix": "end"}, "suffix"),
        (Api.TEXT, {"best_of": 3}, "best_of"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(api, change, field):
    body = (CHAT if api is Api.CHAT else TEXT) | change
    with pytest.raises(InvalidInput) as refused:
        parse_ask(api, body)
    assert refused.value.field == field


@pytest.mark.parametrize("body", [None, [], "text", 5])
def test_a_body_that_is_no_object_is_refused(body):
    with pytest.raises(InvalidInput):
        parse_ask(Api.CHAT, body)


@pytest.mark.parametrize(
    "harmless",
    [{"presence_penalty": 0}, {"logit_bias": {}}, {"response_format": {"type": "text"}}, {"tool_choice": "auto"}],
)
def test_what_asks_for_nothing_is_let_through(harmless):
    assert parse_ask(Api.CHAT, CHAT | harmless) == parse_ask(Api.CHAT, CHAT)


DETAIL = TokenDetail(
    sampled=TokenLogprob(id=7, logprob=-0.5, token="한", bytes=[237, 149, 156]),
    top=[TokenLogprob(id=8, logprob=-0.1, token="b", bytes=[98])],
)


def test_chat_logprobs_have_bytes_and_alternatives():
    (shown,) = openai.chat_logprobs([DETAIL])["content"]
    assert shown == {
        "token": "한",
        "logprob": -0.5,
        "bytes": [237, 149, 156],
        "top_logprobs": [{"token": "b", "logprob": -0.1, "bytes": [98]}],
    }


def test_text_offsets_count_characters_from_where_the_chunk_begins():
    shown = openai.text_logprobs([DETAIL, DETAIL], 10)
    assert shown["text_offset"] == [10, 11]
    assert shown["top_logprobs"] == [{"b": -0.1}, {"b": -0.1}]


def test_no_logprobs_where_none_were_asked_for():
    assert openai.chat_logprobs(None) is None and openai.text_logprobs(None, 0) is None


def test_usage_counts_cached_tokens_inside_the_prompt():
    usage = openai.usage_json(prompt=10, cached=4, completion=3)
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (10, 13)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidInput("x", field="n"), "invalid_request_error"),
        (Conflict("x"), "invalid_request_error"),
        (Forbidden("x"), "permission_error"),
        (RateLimited("x"), "rate_limit_error"),
        (Unavailable("x"), "server_error"),
    ],
)
def test_errors_have_openais_shape(error, kind):
    body = openai.error_json(error)["error"]
    assert body == {"message": "x", "type": kind, "param": error.field, "code": error.code}
