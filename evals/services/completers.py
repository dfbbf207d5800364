"""Completers over HTTP, in OpenAI's shapes: our own gateway, and any judge that speaks the same.

Every request goes through registry.outbound. What is slow, too large, refused or not understood ends as
CompletionFailed, after a bounded number of tries with jitter where another try may help.
"""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Self
from uuid import UUID

import httpx
from django.conf import settings
from django.utils import timezone

from evals.judging.completer import (
    Completer,
    Completion,
    CompletionFailed,
    CompletionRefused,
    Prompt,
    TokenChoices,
)
from evals.judging.scripted import ScriptedCompleter
from evals.models import JudgeVersion
from evals.services.event_streams import CONTENT_TYPE, reply_of_stream
from evals.services.judges import SCRIPTED, is_as_it_was
from registry import outbound
from registry.auth import internal_token
from registry.errors import InvalidInput, StropError
from registry.internal_token import Purpose
from registry.price_cards import card_at, cards_at, prices_of_card
from registry.pricing import InvalidUsage, PriceList, Usage, cost_of_request, usage_from_openai
from registry.services import parse_checkpoint_name
from registry.tenancy import tenant

MAX_TRIES = 4
MAX_REPLY = 4 << 20  # bytes
FIRST_WAIT_S = 0.5  # doubled at each try, times 0.5 to 1.5
MAX_WAIT_S = 20.0
RETRYABLE = (408, 409, 425, 429, 500, 502, 503, 504)
REFUSED = (400, 422)  # the request itself is wrong
MAX_REASON = 300  # characters of a refusal's own words


class HttpCompleter:
    """One model behind an OpenAI-compatible base URL, e.g. https://api.example.com/v1."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        headers: Mapping[str, str],
        prices: PriceList | None = None,
        timeout_s: float = 120.0,
        max_tries: int = MAX_TRIES,
    ) -> None:
        self.model = model
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)
        self._prices = prices
        self._timeout_s = timeout_s
        self._max_tries = max_tries
        self._client: httpx.AsyncClient | None = None

    def headers(self) -> dict[str, str]:
        """What goes with each request."""
        return self._headers

    async def __aenter__(self) -> Self:
        self._client = outbound.client(timeout_s=self._timeout_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None
        await self._client.aclose()
        self._client = None

    async def complete(self, prompt: Prompt | Sequence[int], sampling: Mapping[str, Any]) -> Completion:
        """Raw text or its token ids go to /completions, a chat to /chat/completions; `sampling` is passed on as it is.
        """
        is_raw = isinstance(prompt, str) or any(isinstance(one, int) for one in prompt[:1])
        url = f"{self._base_url}/{'completions' if is_raw else 'chat/completions'}"
        body = {"model": self.model, **sampling, "prompt" if is_raw else "messages": prompt}
        wait_s = FIRST_WAIT_S
        for attempt in range(1, self._max_tries + 1):
            started = time.monotonic()
            try:
                reply = await self._post(url, body)
            except _TryAgain as again:
                if attempt == self._max_tries:
                    raise CompletionFailed(f"{again}, {attempt} times") from again
                await asyncio.sleep(min(again.wait_s or wait_s * random.uniform(0.5, 1.5), MAX_WAIT_S))
                wait_s *= 2
                continue
            return self._completion(reply, is_raw=is_raw, latency_ms=1000 * (time.monotonic() - started))
        raise AssertionError("the loop returns or raises")

    async def _post(self, url: str, body: dict[str, Any]) -> Any:
        assert self._client is not None, "use the completer inside `async with`"
        try:
            # httpx times each read; a slow drip needs a limit for the whole.
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", url, json=body, headers=self.headers()) as response,
            ):
                text = await _text_of(response)
        except (httpx.TransportError, TimeoutError) as error:
            raise _TryAgain(f"no reply: {type(error).__name__}") from error
        except (httpx.HTTPError, httpx.InvalidURL, StropError) as error:
            raise CompletionFailed(f"could not ask: {error}") from error
        if response.status_code in RETRYABLE:
            raise _TryAgain(f"status {response.status_code}", wait_s=_retry_after(response))
        if response.status_code in REFUSED:
            raise CompletionRefused(f"status {response.status_code}{_reason_of(text)}")
        if response.status_code != 200:
            raise CompletionFailed(f"status {response.status_code}")
        try:
            is_stream = response.headers.get("content-type", "").startswith(CONTENT_TYPE)
            return reply_of_stream(text) if is_stream else json.loads(text)
        except (ValueError, AttributeError, TypeError) as error:
            raise CompletionFailed("the reply is not JSON") from error

    def _completion(self, reply: Any, *, is_raw: bool, latency_ms: float) -> Completion:
        try:
            choice = reply["choices"][0]
            text = choice["text"] if is_raw else choice["message"]["content"]
            thought = "" if is_raw else _reasoning(choice["message"])
            usage, origin = reply.get("usage"), str(reply.get("model") or self.model)
            reason, tokens = choice.get("finish_reason"), _tokens(choice.get("logprobs"))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise CompletionFailed("the reply has no choice with a text") from error
        if not isinstance(text, str):
            raise CompletionFailed(f"the text of the reply is {type(text).__name__}")
        counted, processing = _usage(usage), _processing(reply)
        return Completion(
            text=text,
            reasoning=thought,
            usage=(counted.to_json() if counted else {}) | _provided(usage) | processing,
            cost_usd=cost_of_request(counted, self._prices, at=timezone.now(), processing=processing.get("processing")),
            latency_ms=latency_ms,
            origin=origin,
            finish_reason=reason,
            tokens=tokens,
        )


class GatewayCompleter(HttpCompleter):
    """A checkpoint of ours, or the serving one of a policy, through our gateway; its turns are marked with `source`."""

    def __init__(self, project_id: UUID, model: str, *, source: str = "eval", **options: Any) -> None:
        self._project_id, self._source = project_id, source
        super().__init__(base_url=f"{settings.WEB_URL}/v1", model=model, headers={}, **options)

    def headers(self) -> dict[str, str]:
        token = internal_token(Purpose.ANSWERS, project=self._project_id, source=self._source)
        return {"authorization": f"Bearer {token}", "x-strop-source": self._source}


def judge_completer(project_id: UUID, *, base_checkpoint: str) -> HttpCompleter:
    """The judge of the settings (STROP_JUDGE_URL, _MODEL, _KEY), or else the frozen base through our gateway."""
    if not settings.JUDGE_URL:
        return GatewayCompleter(project_id, base_checkpoint, source="judge")
    return HttpCompleter(
        base_url=settings.JUDGE_URL,
        model=settings.JUDGE_MODEL,
        headers={"authorization": f"Bearer {settings.JUDGE_KEY}"} if settings.JUDGE_KEY else {},
        prices=prices_of(project_id, settings.JUDGE_MODEL),
    )


def completer_of(judge: JudgeVersion) -> Completer:
    """Asks the model this judge is made of: a script, the address it names, the judge of the settings, or a checkpoint
    through our gateway.

    Raises InvalidInput where the version cannot judge any more: other settings now, or another prompt or parser.
    """
    if not is_as_it_was(judge):
        raise InvalidInput("this version was asked with another prompt or parser; judge again to make a new version")
    if judge.endpoint == SCRIPTED:
        return ScriptedCompleter(judge.model.removeprefix("scripted/"), low=judge.scale_low, high=judge.scale_high)
    if judge.endpoint:
        return HttpCompleter(
            base_url=judge.endpoint,
            model=judge.model,
            headers=key_headers(judge.endpoint),
            prices=prices_of(judge.project_id, judge.model),
        )
    if settings.JUDGE_URL and judge.model == settings.JUDGE_MODEL:
        return judge_completer(judge.project_id, base_checkpoint="")
    try:
        parse_checkpoint_name(judge.model)
    except InvalidInput:
        now = settings.JUDGE_MODEL if settings.JUDGE_URL else "no judge"
        raise InvalidInput(f"{judge.model} cannot be asked: the settings (STROP_JUDGE_URL) name {now}") from None
    return GatewayCompleter(judge.project_id, judge.model, source="judge")


def key_headers(endpoint: str) -> dict[str, str]:
    """The operator binds each key to an address; no other address is ever sent it."""
    keys = dict(entry.partition("=")[::2] for entry in settings.JUDGE_KEYS)
    if settings.JUDGE_URL and settings.JUDGE_KEY:
        keys.setdefault(settings.JUDGE_URL, settings.JUDGE_KEY)
    found = {url.rstrip("/"): key for url, key in keys.items()}.get(endpoint)
    return {"authorization": f"Bearer {found}"} if found else {}


def prices_of(project_id: UUID, model: str) -> PriceList | None:
    """Of the price card that is valid now; None when the model has none."""
    now = timezone.now()
    with tenant(project_id):
        card = card_at(cards_at(now, model), model, now)
    return None if card is None else prices_of_card(card)


class _TryAgain(Exception):
    def __init__(self, message: str, *, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


async def _text_of(response: httpx.Response) -> str:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_REPLY:
            raise CompletionFailed(f"the reply is larger than {MAX_REPLY} bytes")
    return body.decode(errors="replace")


def _reason_of(text: str) -> str:
    """What an error in OpenAI's shape says, after a colon; empty for any other reply."""
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return ""
    return f": {message[:MAX_REASON]}" if isinstance(message, str) and message else ""


def _retry_after(response: httpx.Response) -> float | None:
    given = response.headers.get("retry-after", "")
    return float(given) if given.isascii() and given.isdigit() and len(given) < 6 else None


def _usage(usage: Any) -> Usage | None:
    """Counts that cannot be are unknown, and so is their cost."""
    try:
        return usage_from_openai(usage) if isinstance(usage, dict) else None
    except InvalidUsage:
        return None


def _processing(reply: Mapping[str, Any]) -> dict[str, str]:
    """At which rate the reply says that it was served, where that is not the standard one."""
    tier = reply.get("service_tier")
    return {"processing": tier} if tier in ("flex", "priority") else {}


def _provided(usage: Any) -> dict[str, str]:
    """What the provider says that it bills, as some do in `usage.cost`; kept apart from what a card makes of it."""
    cost = usage.get("cost") if isinstance(usage, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e6:
        return {}
    return {"provided_usd": f"{Decimal(str(cost)):f}"}


def _reasoning(message: Mapping[str, Any]) -> str:
    """As those who serve open models call it, and others that sit in front of them."""
    told = message.get("reasoning_content") or message.get("reasoning")
    return told if isinstance(told, str) else ""


def _tokens(logprobs: Any) -> list[TokenChoices]:
    """Of a reply in either of OpenAI's shapes; empty where they were not given, or are not understood."""
    try:
        if "token_logprobs" in (logprobs or {}):
            names, likely = logprobs["tokens"], logprobs["token_logprobs"]
            tops = logprobs.get("top_logprobs") or [None] * len(names)
            return [
                TokenChoices(
                    token=str(name),
                    top={} if own is None else {str(name): float(own)} | {k: float(v) for k, v in (top or {}).items()},
                )
                for name, own, top in zip(names, likely, tops, strict=True)
            ]
        return [
            TokenChoices(
                token=str(one["token"]),
                top={str(top["token"]): float(top["logprob"]) for top in one.get("top_logprobs") or [one]},
            )
            for one in (logprobs or {}).get("content") or []
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []
