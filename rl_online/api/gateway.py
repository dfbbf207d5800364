"""The OpenAI-compatible gateway: chat completions, completions, models.

A view parses, asks the engine and answers; every choice is a stored Turn before its answer is complete
(services.generation). Not here: what a request may say (api.openai) and which checkpoint answers (services.routing).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from registry.auth import Caller, authenticate
from registry.errors import Forbidden, InvalidInput, RateLimited, StropError, TooLarge, Unavailable
from registry.ids import new_id
from registry.models import Scope
from registry.tenancy import tenant
from rl_online.api import openai
from rl_online.api.openai import Api, Ask, Head
from rl_online.api.threads import in_thread
from rl_online.services import routing
from rl_online.services.generation import Generation, Heartbeat
from rl_online.services.problem_links import refused_links
from rl_online.services.recording import Choice, Exchange, record_choices
from rl_online.services.routing import ModelNotFound, Route
from rl_online.serving import protocol
from rl_online.serving.client import EngineClient
from rl_online.serving.protocol import Chunk, EngineError, GenRequest, Sampling, UnknownCheckpoint

RETRY_AFTER_S = 2
FIRST_EVENT_S = 10.0  # a stream that has nothing by then begins with a heartbeat
INTERNAL_SOURCES = ("eval", "judge", "simulated", "playground")
MAX_HEADER = 128
LOGPROBS_MODE = "processed"

View = Callable[..., Awaitable[HttpResponse | StreamingHttpResponse]]

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, EngineClient] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A request whose key, body and model have been checked."""

    project_id: UUID
    ask: Ask
    route: Route
    source: str
    session: str


class ContextTooLong(InvalidInput):
    code = "context_length_exceeded"


class EngineFailed(StropError):
    code = "engine_error"


def engine() -> EngineClient:
    """This event loop's client of the engine."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        _clients[loop] = EngineClient(settings.HOME.engine_socket)
    return _clients[loop]


def answered(view: View) -> View:
    """What is wrong becomes OpenAI's error object with its status."""

    @csrf_exempt
    @wraps(view)
    async def call(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        try:
            return await view(request)
        except RequestDataTooBig:
            return _refused(TooLarge(f"the body exceeds {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes"))
        except (OperationalError, InterfaceError):
            return _refused(Unavailable("the database is away; try again", retry_after_s=RETRY_AFTER_S))
        except (StropError, EngineError) as error:
            return _refused(as_strop_error(error))

    return call


@answered
async def chat_completions(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    return await _complete(request, Api.CHAT)


@answered
async def completions(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    return await _complete(request, Api.TEXT)


@answered
async def models(request: HttpRequest) -> HttpResponse:
    if request.method != "GET":
        return _wrong_method("GET")

    def find() -> list[tuple[str, int]]:
        return routing.model_names(_project(authenticate(request, Scope.INFER)))

    names = await in_thread(find)
    data = [{"id": name, "object": "model", "created": created, "owned_by": "strop"} for name, created in names]
    return JsonResponse({"object": "list", "data": data})


async def _complete(request: HttpRequest, api: Api) -> HttpResponse | StreamingHttpResponse:
    if request.method != "POST":
        return _wrong_method("POST")
    body = request.body
    opened = await in_thread(_open, request, body, api)
    try:
        answer = await _start(opened)
    except UnknownCheckpoint as error:
        # The alias may have moved between our look and the engine's.
        again = await in_thread(_open, request, body, api)
        if not again.route.follows_deployment:
            raise ModelNotFound(f"{again.route.name} is not loaded in the engine", field="model") from error
        if again.route == opened.route:
            raise Unavailable(f"{again.route.name} is being loaded", retry_after_s=RETRY_AFTER_S) from error
        answer = await _start(again)
    return await answer.stream() if answer.opened.ask.stream else await answer.whole()


def _open(request: HttpRequest, body: bytes, api: Api) -> Opened:
    caller = authenticate(request, Scope.INFER)
    project_id = _project(caller)
    try:
        ask = openai.parse_ask(api, msgspec.json.decode(body))
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None
    session = _header(request, "x-strop-session") or ask.session or new_id()
    source = request.headers.get("x-strop-source") or "production"
    if source != "production" and (source not in INTERNAL_SOURCES or source != caller.source):
        raise Forbidden("x-strop-source is for Strop's own processes", field="x-strop-source")
    if source in ("production", "simulated"):
        _check_problem(project_id, ask.metadata.get("problem"))
    route = routing.resolve(project_id, ask.model, sticky=ask.user or session)
    return Opened(project_id=project_id, ask=ask, route=route, source=source, session=session)


async def _start(opened: Opened) -> "Answer":
    """Ask the engine; returns when the first event is there, so that what is refused is refused with a status."""
    ask, route = opened.ask, opened.route
    ids = await engine().encode(route.engine_name, messages=ask.messages, prompt=ask.prompt, tools=ask.tools)
    max_tokens = ask.max_tokens or openai.DEFAULT_MAX_TOKENS
    answer = Answer(opened, ids, max_tokens)
    try:
        await answer.begin()
    except protocol.ContextTooLong as error:
        room = error.limit - len(ids)
        if ask.max_tokens is not None or room < 1:
            raise
        answer = Answer(opened, ids, room)
        await answer.begin()
    return answer


class Answer:
    """A generation under way and the two ways of telling about it: whole, or as a stream."""

    def __init__(self, opened: Opened, ids: list[int], max_tokens: int) -> None:
        ask, route = opened.ask, opened.route
        self.opened = opened
        self.prompt_tokens = len(ids)
        self.sampling = Sampling(
            temperature=ask.temperature,
            top_p=ask.top_p,
            top_k=ask.top_k,
            max_tokens=max_tokens,
            stop=ask.stop,
            seed=ask.seed,
        )
        self.exchange = Exchange(
            session=opened.session,
            index=sum(message["role"] == "assistant" for message in ask.messages or []),
            at=datetime.now(UTC),
            checkpoint=route.name,
            messages=ask.messages,
            prompt=ask.prompt,
            input_ids=ids,
            sampling=self.sampling,
            logprobs_mode=LOGPROBS_MODE,
            source=opened.source,
            user=ask.user,
            metadata=ask.metadata,
            problem=ask.metadata.get("problem"),
        )
        choices = [Choice(index=index, turn_id=new_id()) for index in range(ask.n)]
        self.head = Head(
            id=choices[0].turn_id,
            api=ask.api,
            created=int(time.time()),
            model=route.name,
            fingerprint=f"fp_{route.tree_digest[:12]}",
        )
        request = GenRequest(
            id=new_id(),
            checkpoint=route.engine_name,
            input_ids=ids,
            sampling=self.sampling,
            n=ask.n,
            top_logprobs=ask.top_logprobs,
        )
        self.generation = Generation(engine(), request, choices, self._record)
        self.events = self.generation.events()
        self._upcoming: asyncio.Task[Chunk | Heartbeat | None] | None = None

    async def begin(self) -> None:
        """Wait for the first event, but not for ever."""
        self._upcoming = asyncio.ensure_future(anext(self.events, None))
        try:
            await asyncio.wait({self._upcoming}, timeout=FIRST_EVENT_S)
        except asyncio.CancelledError:
            self._upcoming.cancel()
            raise
        if self._upcoming.done():
            self._upcoming.result()

    async def whole(self) -> HttpResponse:
        async with aclosing(self._all_events()) as events:
            async for _ in events:
                pass
        choices = self.generation.choices
        body = self.head.to_json(is_chunk=False) | {
            "choices": [self._choice(choice) for choice in choices],
            "usage": self._usage(),
        }
        response = HttpResponse(msgspec.json.encode(body), content_type="application/json")
        return self._with_headers(response)

    async def stream(self) -> StreamingHttpResponse:
        response = StreamingHttpResponse(self._sse(), content_type="text/event-stream; charset=utf-8")
        response["cache-control"] = "no-cache"
        response["x-accel-buffering"] = "no"
        return self._with_headers(response)

    async def _sse(self) -> AsyncIterator[bytes]:
        is_chat = self.opened.ask.api is Api.CHAT
        try:
            if is_chat:
                for choice in self.generation.choices:
                    delta = {"role": "assistant", "content": ""}
                    yield self._event([openai.chat_delta(choice.index, choice.turn_id, delta)])
            sent = [0] * len(self.generation.choices)
            async with aclosing(self._all_events()) as events:
                async for event in events:
                    if isinstance(event, Heartbeat):
                        yield b": keep-alive\n\n"
                    elif event.text or (event.details and event.ids):
                        yield self._event([self._piece(event, offset=sent[event.index])])
                        sent[event.index] += len(event.text)
            for choice in self.generation.choices:
                yield self._event([self._end(choice)])
        except (StropError, EngineError) as error:
            yield b"event: error\n" + _data(openai.error_json(as_strop_error(error)))
            return
        if self.opened.ask.include_usage:
            yield self._event([], usage=self._usage())
        yield b"data: [DONE]\n\n"

    async def _all_events(self) -> AsyncGenerator[Chunk | Heartbeat]:
        """From the first event on, which `begin` has been waiting for."""
        try:
            assert self._upcoming is not None, "begin comes first"
            event = await self._upcoming
            while event is not None:
                yield event
                event = await anext(self.events, None)
        finally:
            await self.events.aclose()

    async def _record(self, choices: Sequence[Choice], elapsed_ms: float, failure: str | None) -> None:
        await in_thread(
            record_choices, self.opened.project_id, self.exchange, choices, elapsed_ms=elapsed_ms, failure=failure
        )

    def _choice(self, choice: Choice) -> dict[str, Any]:
        build = openai.chat_choice if self.opened.ask.api is Api.CHAT else openai.text_choice
        shown = build(choice.index, choice.turn_id, choice.text, _finish_reason(choice), self._details(choice.details))
        if self.opened.ask.return_token_ids:
            shown |= {"token_ids": choice.ids, "prompt_token_ids": self.exchange.input_ids}
        return shown

    def _piece(self, chunk: Chunk, *, offset: int) -> dict[str, Any]:
        turn_id = self.generation.choices[chunk.index].turn_id
        details = self._details(chunk.details or [])
        if self.opened.ask.api is Api.CHAT:
            shown = openai.chat_delta(chunk.index, turn_id, {"content": chunk.text}, details=details)
        else:
            shown = openai.text_choice(chunk.index, turn_id, chunk.text, None, details, offset)
        return shown | ({"token_ids": chunk.ids} if self.opened.ask.return_token_ids else {})

    def _end(self, choice: Choice) -> dict[str, Any]:
        if self.opened.ask.api is Api.CHAT:
            return openai.chat_delta(choice.index, choice.turn_id, {}, _finish_reason(choice))
        return openai.text_choice(choice.index, choice.turn_id, "", _finish_reason(choice), None)

    def _details(self, details: list[protocol.TokenDetail]) -> list[protocol.TokenDetail] | None:
        return None if self.opened.ask.top_logprobs is None else details

    def _usage(self) -> dict[str, Any]:
        finals = [choice.final for choice in self.generation.choices if choice.final]
        return openai.usage_json(
            prompt=self.prompt_tokens,
            cached=max((final.usage.cached for final in finals), default=0),
            completion=sum(len(choice.ids) for choice in self.generation.choices),
        )

    def _event(self, choices: list[dict[str, Any]], *, usage: dict[str, Any] | None = None) -> bytes:
        body = self.head.to_json(is_chunk=True) | {"choices": choices}
        return _data(body | ({"usage": usage} if self.opened.ask.include_usage else {}))

    def _with_headers(self, response: Any) -> Any:
        response["x-strop-turn"] = self.head.id
        response["x-weight-version"] = str(self.opened.route.version)
        return response


def as_strop_error(error: StropError | EngineError) -> StropError:
    """What the engine said, as this API says it."""
    match error:
        case StropError():
            return error
        case protocol.EngineBusy():
            return RateLimited("the engine's queue is full", retry_after_s=max(1, round(error.retry_after_s)))
        case protocol.EngineUnavailable():
            return Unavailable("the engine is not reachable", retry_after_s=RETRY_AFTER_S)
        case protocol.ContextTooLong():
            found = f"{error.details.get('prompt_tokens', '?')} prompt tokens and max_tokens"
            return ContextTooLong(f"{found} exceed this model's context of {error.limit} tokens", field="max_tokens")
        case protocol.InvalidRequest():
            return InvalidInput(error.message, field=error.field and error.field.removeprefix("sampling."))
        case UnknownCheckpoint():
            return Unavailable("the checkpoint is being loaded", retry_after_s=RETRY_AFTER_S)
    return EngineFailed("the engine failed on this request")


def _finish_reason(choice: Choice) -> str:
    assert choice.final is not None, "a generation that ended without an error has an end for each choice"
    return choice.final.finish_reason.value


def _refused(error: StropError) -> HttpResponse:
    response = JsonResponse(openai.error_json(error), status=error.status)
    if error.retry_after_s is not None:
        response["retry-after"] = str(error.retry_after_s)
    return response


def _wrong_method(allowed: str) -> HttpResponse:
    response = _refused(InvalidInput(f"use {allowed}"))
    response.status_code = 405
    response["allow"] = allowed
    return response


def _project(caller: Caller) -> UUID:
    if caller.project_id is None:
        raise Forbidden("a token for weights does not ask for answers")
    return caller.project_id


def _header(request: HttpRequest, name: str) -> str | None:
    value = request.headers.get(name)
    if value is not None and not 0 < len(value) <= MAX_HEADER:
        raise InvalidInput(f"{name} must have 1 to {MAX_HEADER} characters", field=name)
    return value


def _check_problem(project_id: UUID, problem: str | None) -> None:
    """A live turn may name a problem to be scored by its tests, but never a held-out one."""
    if problem is not None:
        with tenant(project_id):
            refused = refused_links({problem})
        if refused:
            raise InvalidInput(refused[problem], field="metadata.problem")


def _data(body: Any) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
