"""Texts as tokens of the serving checkpoint, and whether tokens can be learnt from. Inside a tenant."""

import asyncio
import json
import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings

from feedback.models import Turn, TurnPayload
from registry.errors import Unavailable
from registry.models import Checkpoint
from rl_online.collecting import Line
from rl_online.policy.end_tokens import all_ends, named_ends
from rl_online.services.plans import folder_of
from rl_online.serving.client import EngineClient
from rl_online.serving.protocol import EngineError, EngineUnavailable, InvalidRequest

log = logging.getLogger(__name__)

MAX_SAMPLE_TOKENS = 4096
ENCODE_TOGETHER = 16
MAX_TOKEN_ID = 2**31 - 1  # the batch format keeps ids in 32 bits
LOWEST_LOGPROB = -1e4

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Text:
    """What the engine is to encode, one of these: a chat, which its template makes a prompt of, a plain prompt, or what
    is said after either.
    """

    messages: list[dict[str, Any]] | None = None
    plain: str | None = None
    completion: str | None = None

    @classmethod
    def prompt_of(cls, payload: TurnPayload) -> "Text":
        return cls(messages=payload.messages, plain=payload.prompt)


def encode_texts(serving: Checkpoint, texts: Mapping[Key, Text]) -> dict[Key, list[int]]:
    """Token ids of each; what the engine refuses, or what comes to none, is left out. Raises Unavailable."""
    return asyncio.run(_encode(f"{serving.policy_id}@{serving.version}", texts)) if texts else {}


async def _encode(checkpoint: str, texts: Mapping[Key, Text]) -> dict[Key, list[int]]:
    gate = asyncio.Semaphore(ENCODE_TOGETHER)
    async with EngineClient(settings.HOME.engine_socket) as engine:

        async def encode(key: Key, text: Text) -> tuple[Key, list[int]]:
            async with gate:
                try:
                    return key, await engine.encode(
                        checkpoint, messages=text.messages, prompt=text.plain, completion=text.completion
                    )
                except InvalidRequest as error:
                    log.info("%s cannot be encoded: %s", key, error)
                    return key, []

        try:
            encoded = await asyncio.gather(*(encode(key, text) for key, text in texts.items()))
        except EngineUnavailable as error:
            raise Unavailable("the engine is away, and turns without token ids need it", retry_after_s=5) from error
        except EngineError as error:
            raise Unavailable(f"the engine could not encode: {error}", retry_after_s=5) from error
    return {key: ids for key, ids in encoded if ids}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is learnt from: a turn's answer, or a text in its place."""

    turn: Turn
    payload: TurnPayload
    text: str | None = None  # None: the turn's own answer
    why: str = ""  # what speaks for it

    @property
    def key(self) -> tuple[str, str | None]:
        return self.turn.turn_id, self.text

    @property
    def words(self) -> str:
        """Nothing where the answer was a call of tools, which its text does not hold."""
        return self.text if self.text is not None else "" if self.payload.tool_calls else self.payload.completion

    def recorded_prompt(self, line: Line) -> list[int] | None:
        """None where other weights, with tokens of their own, were given it."""
        return self.payload.prompt_token_ids or None if self.turn.policy == line.policy.name else None

    def recorded_completion(self, line: Line) -> list[int] | None:
        is_own = self.text is None and self.recorded_prompt(line)
        return self.payload.completion_token_ids or None if is_own else None


@dataclass(frozen=True, kw_only=True)
class Tokens:
    prompt: list[int]
    completion: list[int]  # with its end token, where there is one


def answers_as_tokens(line: Line, answers: Sequence[Answer]) -> dict[tuple[str, str | None], Tokens]:
    """By key; as recorded where the policy itself was the sampler, else as the serving checkpoint encodes the text.

    An answer without tokens is left out: an empty one, a call of tools, what the template refuses. Raises Unavailable.
    """
    texts: dict[tuple[str, str, str | None], Text] = {}
    for one in answers:
        if one.recorded_prompt(line) is None:
            texts[one.turn.turn_id, "prompt", None] = Text.prompt_of(one.payload)
        if one.recorded_completion(line) is None and one.words:
            texts[one.turn.turn_id, "answer", one.text] = Text(completion=one.words)
    encoded, ends = encode_texts(line.serving, texts), end_tokens(line.serving)
    found: dict[tuple[str, str | None], Tokens] = {}
    for one in answers:
        prompt = one.recorded_prompt(line) or encoded.get((one.turn.turn_id, "prompt", None))
        completion = one.recorded_completion(line)
        if completion is None and (words := encoded.get((one.turn.turn_id, "answer", one.text))):
            completion = words + ending_of(one.payload, finish_reason=one.turn.finish_reason, ends=ends)
        if prompt and completion:
            found[one.key] = Tokens(prompt=prompt, completion=completion)
    return found


def num_token_ids(checkpoint: Checkpoint) -> int:
    """Ids below this are tokens of the model; of one whose folder is not on this machine, all that a batch can hold."""
    config = _config(checkpoint)
    return MAX_TOKEN_ID if config is None else int(config.get("text_config", config)["vocab_size"])


def end_tokens(checkpoint: Checkpoint) -> list[int]:
    """Ids that end an answer, the customary one first; none for a checkpoint whose folder is not on this machine."""
    folder = folder_of(checkpoint)
    return all_ends(named_ends(folder / "config.json"), named_ends(folder / "generation_config.json"))


def _config(checkpoint: Checkpoint) -> dict[str, Any] | None:
    path = folder_of(checkpoint) / "config.json"
    return json.loads(path.read_bytes()) if path.is_file() else None


def ending_of(payload: TurnPayload, *, finish_reason: str | None, ends: Sequence[int]) -> list[int]:
    """The end token that belongs behind another text of this answer: its own, or a finished chat's; else none.

    An answer that a stop text cut has none, and nor should what somebody made of it.
    """
    if payload.completion_token_ids:
        last = payload.completion_token_ids[-1]
        return [last] if last in ends else []
    return list(ends[:1]) if payload.messages and finish_reason == "stop" else []


def token_fault(token_ids: Sequence[int], logprobs: Sequence[float], *, num_ids: int) -> str | None:
    """Why these tokens cannot be learnt from; one such sample would fail the whole update."""
    if len(token_ids) > MAX_SAMPLE_TOKENS:
        return "too long"
    if not all(0 <= token < num_ids for token in token_ids):
        return "token ids not of this model"
    if not all(LOWEST_LOGPROB <= logprob <= 0 for logprob in logprobs):
        return "logprobs out of range"
    return None
