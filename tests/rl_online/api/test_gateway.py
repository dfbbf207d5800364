"""The gateway as the real `openai` client sees it: uvicorn, engine process and PostgreSQL, a tiny policy behind.

`reciter` says a fixed Korean text with emoji whatever it is asked; `editor` is a random network.
"""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from registry.internal_token import Purpose, mint
from tests.live import LiveStrop, live, wait_until
from tests.rl_online.serving import tiny

TEXT = "안녕하세요 세계 🙂🚀👩‍💻 끝."
CONTEXT = 4096  # long enough that a caller can leave in the middle of an answer
PIECES = ["안녕하세요 ", "세계 ", "🙂🚀", "👩‍💻", " 끝."]
MAX_BATCH = 8
HI = [{"role": "user", "content": "hi"}]

SETUP = """
import json
from pathlib import Path
from registry.services import all_projects, create_key, create_project
from registry.tenancy import tenant
from rl_online.services.plans import start_policy
project = all_projects()[0]
ids = {{name: str(start_policy(project.id, name=name, folder=Path(folder)).id)
        for name, folder in (("reciter", "{reciter}"), ("editor", "{editor}"))}}
other = create_project("other", "Other")
with tenant(project.id):
    key = create_key("t", ["infer", "read"], actor="test")[0]
    blind = create_key("t", ["ingest"], actor="test")[0]
with tenant(other.id):
    strange = create_key("t", ["infer"], actor="test")[0]
print(json.dumps({{"key": key, "blind": blind, "strange": strange, "project": str(project.id), **ids}}))
"""


class Site:
    def __init__(self, strop: LiveStrop, facts: dict[str, str]) -> None:
        self.strop = strop
        self.facts = facts
        self.base = f"{strop.url}/v1"
        self.client = openai.OpenAI(base_url=self.base, api_key=facts["key"], max_retries=0)

    def turn(self, turn_id: str) -> dict:
        """The stored turn and its payload."""
        ((row,),) = self.strop.rows(
            "SELECT to_jsonb(t) || to_jsonb(p) || jsonb_build_object('session_ref', s.session_id) "
            "FROM feedback_turn t JOIN feedback_turnpayload p USING (project_id, turn_id) "
            "JOIN feedback_agentsession s ON s.id = t.session_id WHERE t.turn_id = %s",
            turn_id,
        )
        return row

    def post(self, path: str, body: dict, **headers: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.facts['key']}"} | headers
        return httpx.post(f"{self.base}/{path}", json=body, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("gateway")
    left_out = [word for name in ("worker", "beat", "updater") for word in ("--without", name)]
    limits = {"STROP_ENGINE_MAX_BATCH": str(MAX_BATCH), "STROP_ENGINE_MAX_WAITING": str(2 * MAX_BATCH)}
    with live(root / "home", *left_out, **limits) as strop:
        reciter = tiny.write_reciter(root / "a", [piece.encode() for piece in PIECES])
        editor = tiny.write_random(root / "b", context=CONTEXT)
        facts = json.loads(strop.run_python(SETUP.format(reciter=reciter, editor=editor)).splitlines()[-1])
        made = Site(strop, facts)
        wait_until(
            lambda: all(
                made.post("completions", {"model": name, "prompt": "x", "max_tokens": 1}).status_code == 200
                for name in ("reciter", "editor")
            ),
            "the engine holds both policies",
        )
        yield made


def test_models_are_the_policies_and_what_serves(site):
    assert [model.id for model in site.client.models.list()] == ["editor", "reciter", "editor@1", "reciter@1"]


def test_a_chat_is_answered_and_stored(site):
    raw = site.client.chat.completions.with_raw_response.create(
        model="reciter",
        messages=HI,
        user="u-1",
        metadata={"surface": "chat", "language": "ko", "slice": "greetings"},
        extra_headers={"x-strop-session": "s-1"},
    )
    reply = raw.parse()
    choice = reply.choices[0]
    assert (choice.message.content, choice.finish_reason) == (TEXT, "stop")
    assert reply.model == "reciter@1"
    assert reply.id == choice.strop_turn == raw.headers["x-strop-turn"]
    assert raw.headers["x-weight-version"] == "1"
    assert reply.usage.completion_tokens == len(PIECES) + 1  # with the end token
    turn = site.turn(reply.id)
    assert (turn["completion"], turn["policy"], turn["version"]) == (TEXT, "reciter", 1)
    assert (turn["session_ref"], turn["user"], turn["surface"], turn["language"]) == ("s-1", "u-1", "chat", "ko")
    assert (turn["source"], turn["finish_reason"], turn["has_logprobs"]) == ("production", "stop", True)
    assert len(turn["completion_token_ids"]) == len(turn["logprobs"]) == len(PIECES) + 1
    assert turn["weight_versions"] == [[0, len(PIECES) + 1, 1]]
    assert turn["sampling"]["temperature"] == turn["sampling"]["top_p"] == 1
    assert turn["sampling"]["logprobs_mode"] == "processed"
    assert turn["input_tokens"] == reply.usage.prompt_tokens == len(turn["prompt_token_ids"])
    assert turn["latency_ms"] >= turn["ttft_ms"] > 0
    assert turn["metadata"]["slice"] == "greetings"


def test_a_korean_and_emoji_stream_is_the_same_text_in_whole_characters(site):
    stream = site.client.chat.completions.create(
        model="reciter", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert len([piece for piece in pieces if piece]) > 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == len(PIECES) + 1
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert site.turn(chunks[0].id)["completion"] == TEXT


def test_a_stream_is_stored_before_its_end_is_told(site):
    stream = site.client.chat.completions.create(model="reciter", messages=HI, stream=True)
    for chunk in stream:
        if chunk.choices[0].finish_reason:
            assert site.turn(chunk.id)["completion"] == TEXT
            break
    else:
        pytest.fail("no chunk had a finish reason")


def test_the_wire_ends_with_done(site):
    body = {"model": "reciter", "messages": HI, "stream": True}
    reply = site.post("chat/completions", body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [line for line in reply.text.split("\n\n") if line]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"


def test_n_answers_are_n_turns_of_one_group(site):
    reply = site.client.completions.create(model="editor", prompt="def f(", n=3, max_tokens=5, seed=3)
    turns = [site.turn(choice.strop_turn) for choice in reply.choices]
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert {turn["group"] for turn in turns} == {reply.id}
    assert len({tuple(turn["completion_token_ids"]) for turn in turns}) > 1
    assert reply.usage.completion_tokens == sum(len(turn["completion_token_ids"]) for turn in turns)


def test_n_answers_stream_side_by_side(site):
    chunks = list(
        site.client.completions.create(model="editor", prompt="def f(", n=2, max_tokens=6, seed=3, stream=True)
    )
    texts = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    whole = site.client.completions.create(model="editor", prompt="def f(", n=2, max_tokens=6, seed=3)
    assert texts == {choice.index: choice.text for choice in whole.choices}


def test_a_seed_repeats_an_answer(site):
    def ask(seed: int) -> list[int]:
        reply = site.client.completions.create(model="editor", prompt="def f(", max_tokens=8, seed=seed)
        return site.turn(reply.id)["completion_token_ids"]

    assert ask(1) == ask(1) != ask(2)


def test_temperature_zero_is_greedy_and_said_so(site):
    replies = [
        site.client.completions.create(model="editor", prompt="def f(", max_tokens=8, temperature=0) for _ in range(2)
    ]
    turns = [site.turn(reply.id) for reply in replies]
    assert turns[0]["completion_token_ids"] == turns[1]["completion_token_ids"]
    assert turns[0]["sampling"]["temperature"] == 0


def test_a_stop_string_cuts_the_text_and_is_not_shown(site):
    reply = site.client.chat.completions.create(model="reciter", messages=HI, stop=["🚀"])
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("안녕하세요 세계 🙂", "stop")
    stream = site.client.chat.completions.create(model="reciter", messages=HI, stop=["계 🙂", "세계"], stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "안녕하세요 "


def test_max_tokens_cuts_with_finish_reason_length(site):
    reply = site.client.chat.completions.create(model="reciter", messages=HI, max_tokens=2)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("안녕하세요 세계 ", "length")
    assert reply.usage.completion_tokens == 2


def test_logprobs_are_those_that_are_stored(site):
    reply = site.client.completions.create(model="editor", prompt="def f(", max_tokens=6, logprobs=3)
    shown = reply.choices[0].logprobs
    assert shown.token_logprobs == pytest.approx(site.turn(reply.id)["logprobs"], abs=1e-6)
    assert len(shown.top_logprobs) == len(shown.text_offset) == len(shown.tokens) == reply.usage.completion_tokens
    chat = site.client.chat.completions.create(
        model="reciter", messages=HI, logprobs=True, top_logprobs=2, max_tokens=2
    )
    content = chat.choices[0].logprobs.content
    assert [bytes(token.bytes).decode() for token in content] == PIECES[:2]
    assert all(len(token.top_logprobs) == 2 for token in content)


def test_streamed_logprobs_cover_every_token(site):
    stream = site.client.chat.completions.create(model="reciter", messages=HI, logprobs=True, stream=True, max_tokens=4)
    tokens = [
        token.token
        for chunk in stream
        if chunk.choices and chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.content
    ]
    assert tokens == PIECES[:4]


def test_token_ids_come_when_asked_for(site):
    reply = site.post("completions", {"model": "editor", "prompt": "ab", "max_tokens": 2, "return_token_ids": True})
    choice = reply.json()["choices"][0]
    turn = site.turn(choice["strop_turn"])
    assert choice["token_ids"] == turn["completion_token_ids"]
    assert choice["prompt_token_ids"] == turn["prompt_token_ids"] == [97, 98]


def test_the_asynchronous_client_and_many_at_once(site):
    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=site.base, api_key=site.facts["key"], max_retries=0) as client:

            async def ask() -> str:
                stream = await client.chat.completions.create(model="reciter", messages=HI, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(*(ask() for _ in range(16)))

    assert asyncio.run(ask_all()) == [TEXT] * 16


def test_a_named_version_is_taken_at_its_word(site):
    assert site.client.chat.completions.create(model="reciter@1", messages=HI).model == "reciter@1"
    for unknown in ("reciter@9", "nobody", "reciter@x", "nobody@1"):
        with pytest.raises(openai.NotFoundError) as refused:
            site.client.chat.completions.create(model=unknown, messages=HI)
        assert refused.value.code == "model_not_found"


def test_what_is_not_supported_is_refused_by_name(site):
    with pytest.raises(openai.BadRequestError) as refused:
        site.client.chat.completions.create(model="reciter", messages=HI, presence_penalty=0.5)
    assert (refused.value.param, refused.value.type) == ("presence_penalty", "invalid_request_error")


def test_a_prompt_beyond_the_context_is_refused(site):
    with pytest.raises(openai.BadRequestError) as refused:
        site.client.completions.create(model="editor", prompt="x" * (CONTEXT + 100))
    assert refused.value.code == "context_length_exceeded"


def test_an_unset_max_tokens_takes_the_room_there_is(site):
    reply = site.client.completions.create(model="editor", prompt="x" * (CONTEXT - 12))
    assert reply.usage.completion_tokens <= 12
    with pytest.raises(openai.BadRequestError):
        site.client.completions.create(model="editor", prompt="x" * (CONTEXT - 12), max_tokens=100)


def test_bodies_that_are_no_request(site):
    url, headers = f"{site.base}/chat/completions", {"authorization": f"Bearer {site.facts['key']}"}
    for body in (b"", b"{", b"[]", b'{"model": "\xff"}'):
        reply = httpx.post(url, content=body, headers=headers)
        assert (reply.status_code, set(reply.json()["error"])) == (400, {"message", "type", "param", "code"})
    assert httpx.get(url, headers=headers).status_code == 405


def test_keys_are_held_to_scope_and_project(site):
    def ask(key: str) -> int:
        return site.post("completions", {"model": "editor", "prompt": "x"}, authorization=f"Bearer {key}").status_code

    assert ask(site.facts["blind"]) == 403
    assert ask(site.facts["strange"]) == 404
    assert ask("strop_guess.secret") == 401


def test_only_our_own_processes_may_name_a_source(site):
    body = {"model": "reciter", "messages": HI}
    refused = site.post("chat/completions", body, **{"x-strop-source": "eval"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (403, "x-strop-source")
    secret, ours = site.strop.home.secret("internal"), site.facts["project"]

    def ask(named: str, purpose: Purpose = Purpose.ANSWERS, **claim: str) -> httpx.Response:
        token = f"Bearer {mint(secret, purpose, **claim)}"
        return site.post("chat/completions", body, authorization=token, **{"x-strop-source": named})

    assert site.turn(ask("eval", project=ours, source="eval").json()["id"])["source"] == "eval"
    assert ask("judge", project=ours, source="eval").status_code == 403
    assert ask("import", project=ours, source="import").status_code == 403
    assert ask("eval", Purpose.WEIGHTS).status_code == 403
    assert ask("eval", Purpose.EVENTS, project=ours, source="eval").status_code == 403
    old = site.post("chat/completions", body, authorization=f"Bearer internal.{secret}")
    assert old.status_code == 401


def test_a_caller_that_leaves_aborts_the_engine_and_the_part_is_stored(site):
    stored = "SELECT finish_reason, output_tokens FROM feedback_turn WHERE turn_id = %s"
    for seed in range(4, 9):  # so small a model may have said all before its caller is gone; then nobody left early
        turn_id = leave_after_the_first_word(site, seed=seed)
        ((finish_reason, num_tokens),) = wait_until(
            lambda made=turn_id: site.strop.rows(stored, made), "the part is stored"
        )
        if finish_reason == "abort":
            break
    assert (finish_reason, num_tokens < CONTEXT - 96) == ("abort", True)


def leave_after_the_first_word(site, *, seed: int) -> str:
    """Returns the turn's id."""
    with httpx.stream(
        "POST",
        f"{site.base}/completions",
        json={"model": "editor", "prompt": "x", "max_tokens": CONTEXT - 96, "stream": True, "seed": seed},
        headers={"authorization": f"Bearer {site.facts['key']}"},
    ) as reply:
        return next(json.loads(line[6:])["id"] for line in reply.iter_lines() if line.startswith("data: "))


def test_an_engine_that_dies_mid_stream_is_an_error_event_not_an_end(site):
    with httpx.stream(
        "POST",
        f"{site.base}/completions",
        json={"model": "editor", "prompt": "x", "max_tokens": 500, "stream": True, "n": 8, "seed": 4},
        headers={"authorization": f"Bearer {site.facts['key']}"},
        timeout=60,
    ) as reply:
        lines = []
        for line in reply.iter_lines():
            if not lines and line:
                site.strop.kill("engine")
            lines.append(line)
    assert "event: error" in lines
    assert "data: [DONE]" not in lines
    error = json.loads(lines[lines.index("event: error") + 1].removeprefix("data: "))
    assert error["error"]["type"] == "server_error"
    turn_id = json.loads(next(line for line in lines if line.startswith("data: "))[6:])["id"]
    assert site.turn(turn_id)["finish_reason"] == "error"
    seen = []

    def comes_back() -> bool:
        answer = ask(site)
        seen.append((answer.status_code, answer.headers.get("retry-after")))
        return answer.status_code == 200

    wait_until(comes_back, "the new engine holds the weights again", every_s=0.05)
    assert {status for status, _ in seen} <= {503, 200}
    assert all(retry_after == "2" for status, retry_after in seen if status == 503)


def ask(site: Site) -> httpx.Response:
    return site.post("completions", {"model": "editor", "prompt": "x", "max_tokens": 1})


def test_a_full_queue_is_429(site):
    def ask_much(_: int) -> httpx.Response:
        return site.post("completions", {"model": "editor", "prompt": "x", "max_tokens": 100, "n": MAX_BATCH})

    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(ask_much, range(12)))
    assert {reply.status_code for reply in replies} == {200, 429}
    busy = next(reply for reply in replies if reply.status_code == 429)
    assert busy.json()["error"]["type"] == "rate_limit_error" and int(busy.headers["retry-after"]) >= 1
