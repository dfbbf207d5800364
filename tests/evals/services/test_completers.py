"""Completers against a scripted HTTP server that behaves like the judges people have complained about."""

import asyncio
import json
import threading
import time
from datetime import timedelta
from decimal import Decimal as D
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.utils import timezone

from evals.judging.completer import CompletionFailed, CompletionRefused
from evals.services import completers
from evals.services.completers import GatewayCompleter, HttpCompleter, judge_completer, prices_of
from registry.internal_token import read
from registry.models import PriceCard
from registry.pricing import PriceList, Prices, Variant
from registry.tenancy import tenant

CHAT = [{"role": "user", "content": "hi"}]
GOOD = {
    "model": "judge-2026", "choices": [{"message": {"content": "hello"}, "text": " world", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 80}},
}  # fmt: skip


class Server:
    """Plays its script, one entry a request: (status, headers, body), or a function of the handler."""

    def __init__(self, script):
        self.requests = []
        lock, left = threading.Lock(), list(script)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    outer.requests.append((self.path, dict(self.headers), body))
                    step = left.pop(0) if len(left) > 1 else left[0]
                if callable(step):
                    step(self)
                    return
                status, headers, reply = step
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(status)
                for name, value in {"content-length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    return

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve(settings, monkeypatch):
    """serve(step, step, ...) -> a running server; retries wait next to nothing."""
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    monkeypatch.setattr(completers, "FIRST_WAIT_S", 0.01)
    running = []

    def start(*script):
        running.append(Server(script))
        return running[-1]

    yield start
    for server in running:
        server.close()


def ask(completer, prompt=CHAT, **sampling):
    async def once():
        async with completer:
            return await completer.complete(prompt, sampling)

    return asyncio.run(once())


def to(server, **options):
    return HttpCompleter(base_url=server.url, model="judge", headers={"authorization": "Bearer k"}, **options)


def test_a_chat_is_asked_and_its_reply_accounted_for(serve):
    server = serve((200, {}, GOOD))
    prices = PriceList(base=Prices(input_usd=D(1), cache_read_usd=D("0.1"), output_usd=D(10)))
    completion = ask(to(server, prices=prices), temperature=0, max_tokens=20)
    assert (completion.text, completion.origin, completion.finish_reason) == ("hello", "judge-2026", "stop")
    assert completion.usage == {"input": 20, "cache_read": 80, "cache_write": 0, "output": 10, "reasoning": 0}
    assert completion.cost_usd == D("0.000128")
    path, headers, body = server.requests[0]
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer k")
    assert body == {"model": "judge", "messages": CHAT, "temperature": 0, "max_tokens": 20}


def test_raw_text_goes_to_completions(serve):
    server = serve((200, {}, GOOD))
    assert ask(to(server), prompt="hello,").text == " world"
    assert (server.requests[0][0], server.requests[0][2]["prompt"]) == ("/v1/completions", "hello,")


@pytest.mark.parametrize("status", [400, 422])
def test_what_is_refused_as_wrong_is_asked_once_and_its_reason_kept(serve, status):
    server = serve((status, {}, {"error": {"message": "max_tokens exceed this model's context of 64 tokens"}}))
    with pytest.raises(CompletionRefused, match=f"status {status}: max_tokens exceed this model's context"):
        ask(to(server))
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", {"error": "no"}, {"error": {"message": 7}}])
def test_a_refusal_without_a_message_is_told_by_its_status(serve, body):
    with pytest.raises(CompletionRefused, match=r"^status 400$"):
        ask(to(serve((400, {}, body))))


def test_a_model_without_a_price_is_unpriced_and_not_free(serve):
    assert ask(to(serve((200, {}, GOOD)))).cost_usd is None


def test_impossible_usage_is_unknown_usage(serve):
    odd = {**GOOD, "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}}
    completion = ask(to(serve((200, {}, odd)), prices=PriceList(base=Prices(input_usd=D(1), output_usd=D(1)))))
    assert (completion.usage, completion.cost_usd) == ({}, None)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again(serve, status):
    server = serve((status, {}, {}), (status, {"retry-after": "0"}, {}), (200, {}, GOOD))
    assert ask(to(server)).text == "hello"
    assert len(server.requests) == 3


def test_tries_are_bounded(serve):
    server = serve((503, {}, {}))
    with pytest.raises(CompletionFailed, match="status 503, 4 times"):
        ask(to(server))
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_what_will_not_pass_is_not_tried_again(serve, status):
    server = serve((status, {}, {"error": "s3cret detail"}))
    with pytest.raises(CompletionFailed, match=f"^status {status}$"):
        ask(to(server))
    assert len(server.requests) == 1


def test_a_redirect_is_not_followed(serve):
    target = serve((200, {}, GOOD))
    server = serve((302, {"location": f"{target.url}/chat/completions"}, {}))
    with pytest.raises(CompletionFailed, match="status 302"):
        ask(to(server))
    assert target.requests == []


@pytest.mark.parametrize(
    "reply",
    [b"<html>", b"", b"[]", {}, {"choices": []}, {"choices": [{"message": {"content": None}}]}, {"choices": ["x"]},
     {"choices": None}, b"11/10", b'{"choices": [{"message": {"content": "cut o'],
)  # fmt: skip
def test_a_reply_that_makes_no_sense_is_a_failure(serve, reply):
    with pytest.raises(CompletionFailed):
        ask(to(serve((200, {}, reply))))


def test_an_endless_reply_is_cut_off(serve):
    with pytest.raises(CompletionFailed, match="larger than"):
        ask(to(serve((200, {}, b"x" * (10 << 20)))))


def hang(handler):
    time.sleep(20)


def drip(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(400):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        return


def cut(handler):
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.close()


@pytest.mark.parametrize("step", [hang, drip, cut])
def test_a_server_that_never_finishes_is_given_up_in_time(serve, step):
    started = time.monotonic()
    with pytest.raises(CompletionFailed, match=r"no reply: .*, 2 times"):
        ask(to(serve(step), timeout_s=0.3, max_tries=2))
    assert time.monotonic() - started < 15


def test_an_address_inside_is_refused_unless_it_is_allowed(serve, settings):
    server = serve((200, {}, GOOD))
    settings.OUTBOUND_ALLOW = []
    with pytest.raises(CompletionFailed, match="not public"):
        ask(to(server))
    assert server.requests == []


def test_our_gateway_is_asked_with_the_internal_token_and_the_source(serve, settings, project):
    server = serve((200, {}, GOOD))
    settings.WEB_URL = server.url.removesuffix("/v1")
    ask(GatewayCompleter(project.id, "editor@3"))
    headers, body = server.requests[0][1:]
    assert headers["authorization"].startswith("Bearer internal.")
    claim = read(settings.HOME.secret("internal"), headers["authorization"].removeprefix("Bearer "))
    assert (claim.project, claim.source, headers["x-strop-source"]) == (str(project.id), "eval", "eval")
    assert body["model"] == "editor@3"


def test_the_judge_is_the_frozen_base_unless_settings_name_another(settings, project):
    base = judge_completer(project.id, base_checkpoint="editor@1")
    assert (base.model, isinstance(base, GatewayCompleter)) == ("editor@1", True)
    settings.JUDGE_URL, settings.JUDGE_MODEL = "https://judge.example/v1", "big-judge"
    other = judge_completer(project.id, base_checkpoint="editor@1")
    assert (other.model, isinstance(other, GatewayCompleter)) == ("big-judge", False)


@pytest.mark.parametrize(
    ("cost", "kept"), [(0.0123, "0.0123"), (1e-7, "0.0000001"), (-1, None), ("0.1", None), (True, None), (1e400, None)]
)
def test_what_the_provider_says_it_bills_is_kept_apart_from_what_the_card_makes_of_it(serve, cost, kept):
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "cost": cost}
    server = serve((200, {}, GOOD | {"usage": usage}))
    completion = ask(to(server, prices=PriceList(base=Prices(input_usd=D(1), output_usd=D(1)))))
    assert completion.usage.get("provided_usd") == kept and completion.cost_usd == D("0.000011")


def test_a_reply_that_was_served_at_another_rate_costs_that_rate(serve):
    half = Variant(processing="flex", prices=Prices(input_usd=D("0.5"), output_usd=D("0.5")))
    prices = PriceList(base=Prices(input_usd=D(1), output_usd=D(1)), variants=(half,))
    flex = ask(to(serve((200, {}, GOOD | {"service_tier": "flex"})), prices=prices))
    assert (flex.usage["processing"], flex.cost_usd) == ("flex", D("0.000055"))
    standard = ask(to(serve((200, {}, GOOD | {"service_tier": "default"})), prices=prices))
    assert ("processing" in standard.usage, standard.cost_usd) == (False, D("0.00011"))


def test_the_newest_valid_price_card_counts(project):
    now = timezone.now()
    with tenant(project.id):
        for days, price in ((-10, 1), (-1, 2), (1, 3)):
            PriceCard.objects.create(
                model="m", valid_from=now + timedelta(days=days), input_usd=price, output_usd=price
            )
    assert prices_of(project.id, "m").base.input_usd == 2
    assert prices_of(project.id, "unknown") is None


@pytest.fixture(params=["http", "gateway", "scripted"])
def completer(request, serve, settings, project, scripted):
    """Every implementation of the Completer protocol, answering `hello` or ` world`."""
    if request.param == "scripted":
        return scripted(lambda prompt: " world" if isinstance(prompt, str) else "hello")
    server = serve((200, {}, GOOD))
    settings.WEB_URL = server.url.removesuffix("/v1")
    return to(server) if request.param == "http" else GatewayCompleter(project.id, "editor@3")


def test_every_completer_answers_chats_and_raw_text_many_at_once(completer):
    async def many():
        async with completer:
            asked = [completer.complete(prompt, {}) for prompt in (CHAT, "hello,") for _ in range(10)]
            return [completion.text for completion in await asyncio.gather(*asked)]

    assert asyncio.run(many()) == ["hello"] * 10 + [" world"] * 10
