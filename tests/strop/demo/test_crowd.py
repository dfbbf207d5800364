"""The crowd against a scripted product on a real socket: a gateway with two answers, an endpoint that counts."""

import asyncio
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from strop.demo.crowd import Crowd
from strop.demo.mailbox import Undelivered
from strop.demo.users import User
from strop.demo.variants import Case, Exercise


def exercise(number):
    return Exercise(
        problem_id=f"add_constant-{number}",
        family="add_constant",
        prompt=f'def add(n):\n    """Return n plus {number}."""\n    return',
        function="add",
        cases=(Case(args=[0], expected=number), Case(args=[5], expected=5 + number)),
        reference=f" n + {number}",
    )


class Product(ThreadingHTTPServer):
    """Answers even problems right and odd ones wrong; refuses the first request of events with 503."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.items, self.refusals_left, self.status = [], [], 1, 202
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/v1/completions":
            self.server.asked.append((self.headers["x-strop-session"], body))
            number = int(body["metadata"]["problem"].rpartition("-")[2])
            choice = {"index": 0, "text": f" n + {number + number % 2}", "finish_reason": "stop", "logprobs": None}
            turn = f"turn-{len(self.server.asked)}"
            return self.answer(
                200,
                {"id": turn, "object": "text_completion", "created": 0, "model": "editor@1", "choices": [choice]},
            )
        if self.server.refusals_left:
            self.server.refusals_left -= 1
            return self.answer(503, {})
        self.server.items.append(body["items"])
        return self.answer(self.server.status, {"outcomes": {"accepted": len(body["items"])}})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def product():
    server = Product()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def play(product, *, num_problems, num_turns, strictness=1.0):
    async def run():
        async with Crowd(
            url=product.url,
            key="key",
            model="editor",
            benchmark="editor-live@1",
            exercises=iter([exercise(number) for number in range(num_problems)]),
            users=[User(name="user-00", strictness=strictness), User(name="user-01", strictness=strictness)],
            seed=0,
        ) as crowd:
            await crowd.play(num_turns)
        return crowd

    return asyncio.run(run())


def test_a_turn_asks_as_the_product_promises(product):
    play(product, num_problems=1, num_turns=1)
    session, body = product.asked[0]
    assert session == "edit-1-0-0-user-00"
    assert body == {
        "model": "editor", "prompt": exercise(0).prompt, "stop": ["\n"], "temperature": 1.0, "max_tokens": 20,
        "user": "user-00", "metadata": {"problem": "editor-live@1/add_constant-0", "slice": "add_constant"},
    }  # fmt: skip


def test_right_answers_are_accepted_and_wrong_ones_rejected_but_for_a_few_mistakes(product):
    crowd = play(product, num_problems=60, num_turns=60)
    assert (crowd.tallies["editor@1"].turns, crowd.tallies["editor@1"].works) == (60, 30)
    told = json.loads(json.dumps(crowd.tallies["editor@1"].to_json()))
    assert sum(told["reactions"].values()) == 60
    number_of = {f"turn-{place}": body for place, (_, body) in enumerate(product.asked, 1)}
    clicks = Counter()
    for item in {item["id"]: item for items in product.items for item in items}.values():
        is_right = int(number_of[item["turn"]]["metadata"]["problem"].rpartition("-")[2]) % 2 == 0
        clicks[is_right, item["kind"]] += 1
    assert clicks[True, "accept"] + clicks[True, "copy"] >= 18  # of 30: some leave, some ask again
    assert clicks[False, "reject"] >= 18
    assert clicks[True, "reject"] + clicks[False, "accept"] <= 8


def test_what_is_refused_for_a_while_is_sent_again_and_nothing_is_lost(product):
    product.refusals_left = 3
    crowd = play(product, num_problems=20, num_turns=20)
    assert crowd.mailbox.outcomes["accepted"] == sum(map(len, product.items)) >= 20


def test_a_refusal_for_good_ends_the_play(product):
    product.status = 401
    with pytest.raises(Undelivered, match="401"):
        play(product, num_problems=5, num_turns=5)


def test_each_problem_is_asked_once_and_the_end_is_noticed(product):
    crowd = play(product, num_problems=3, num_turns=10)
    assert crowd.is_spent
    assert len(product.asked) == 3
