"""CASES D.21: usage of a streamed reply, told in every chunk, in the last one only, or never."""

import asyncio
import json
import threading
from decimal import Decimal as D
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from evals.judging.completer import CompletionFailed
from evals.services.completers import HttpCompleter
from evals.services.event_streams import reply_of_stream
from registry.pricing import PriceList, Prices, Usage, usage_from_openai

LAST = {"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 80}}


def stream(*usages, words=("He", "llo", "!")):
    """One chunk a word with its usage, then the end."""
    chunks = [
        {"model": "m", "choices": [{"index": 0, "delta": {"content": word}}], "usage": usage}
        for word, usage in zip(words, usages, strict=True)
    ]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def counted(n):
    return LAST | {"completion_tokens": n}


@pytest.mark.parametrize(
    "usages", [(counted(1), counted(2), LAST), (None, None, LAST)], ids=["in every chunk, cumulative", "in the last"]
)
def test_d21_the_last_usage_told_is_the_whole_calls(usages):
    reply = reply_of_stream(stream(*usages))
    assert reply["choices"][0]["message"]["content"] == "Hello!"
    assert usage_from_openai(reply["usage"]) == Usage(input=20, cache_read=80, output=3)


def test_d21_a_count_that_falls_is_not_the_largest_of_each_kind():
    # a first chunk that guesses high must not be kept beside the last one's truth
    assert reply_of_stream(stream(counted(50), counted(2), LAST))["usage"] == LAST


def test_d21_a_stream_that_never_tells_has_unknown_usage_and_no_cost():
    assert usage_from_openai(reply_of_stream(stream(None, None, None))["usage"]) is None


def test_a_chunk_that_is_no_object_is_refused():
    with pytest.raises(ValueError, match="a chunk is list"):
        reply_of_stream("data: [1]\n")


@pytest.fixture
def served(settings):
    """served(body) -> the address of a server that answers with this stream."""
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    running = []

    def start(body: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream; charset=utf-8")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_port}/v1"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def asked(url):
    async def ask():
        prices = PriceList(base=Prices(input_usd=D(1), cache_read_usd=D("0.1"), output_usd=D(10)))
        async with HttpCompleter(base_url=url, model="m", headers={}, prices=prices, max_tries=1) as completer:
            return await completer.complete([{"role": "user", "content": "hi"}], {})

    return asyncio.run(ask())


def test_d21_a_completer_pays_a_streamed_reply_once(served):
    told = asked(served(stream(counted(1), counted(2), LAST)))
    assert (told.text, told.cost_usd) == ("Hello!", (20 * D(1) + 80 * D("0.1") + 3 * D(10)) / 1_000_000)
    silent = asked(served(stream(None, None, None)))
    assert (silent.text, silent.usage, silent.cost_usd) == ("Hello!", {}, None)


def test_a_broken_stream_is_no_answer(served):
    with pytest.raises(CompletionFailed, match="not JSON"):
        asked(served("data: {oops\n\n"))
