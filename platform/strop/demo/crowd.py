"""The users of the demo's editor. They reach Strop only over HTTP, as any product would.

Each turn: ask the gateway through the `openai` client, try the answer, send what one thinks of it as signals.
Closed loop: a call of `play` takes as many turns as it is told and no more, so that the processor is free to learn.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, Self

import httpx
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from strop.demo.mailbox import Mailbox
from strop.demo.trying import Workbench
from strop.demo.users import Signal, User, react
from strop.demo.variants import Exercise

NUM_USERS = 24
TOGETHER = 32  # turns in flight: the engine decodes them in one batch
MAX_TOKENS = 20
TURNS_A_SESSION = 8
TIMEOUT_S = 120.0
MAX_RETRIES = 60  # about two minutes: an engine that starts again has to load its weights


@dataclass(kw_only=True)
class Tally:
    """What the crowd knows of one checkpoint, whose name came with its answers."""

    turns: int = 0
    works: int = 0  # passed the crowd's own trial
    kinds: Counter[str] = field(default_factory=Counter)  # first signal of each reaction; "silence" for none

    def to_json(self) -> dict[str, Any]:
        return {"turns": self.turns, "works": self.works, "reactions": dict(self.kinds)}


class Crowd:
    """Use as `async with`. `exercises` are asked in order, each once (a user who asks again repeats one)."""

    def __init__(
        self,
        *,
        url: str,
        key: str,
        model: str,
        benchmark: str,
        exercises: Iterator[Exercise],
        users: list[User],
        seed: int,
    ) -> None:
        """`model` is the policy's name, `benchmark` the live problem set as `<name>@<version>`."""
        self.tallies: dict[str, Tally] = {}
        self.is_spent = False  # every problem has been asked
        self._model, self._benchmark, self._seed = model, benchmark, seed
        self._exercises, self._users = exercises, users
        self._num_turns = 0
        self._workbench = Workbench()
        self._openai = AsyncOpenAI(
            base_url=f"{url}/v1", api_key=key, max_retries=MAX_RETRIES, timeout=TIMEOUT_S,
            http_client=DefaultAsyncHttpxClient(trust_env=False),
        )  # fmt: skip
        self._http = httpx.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30, trust_env=False
        )
        self.mailbox = Mailbox(self._http, rng=Random(f"mailbox {seed}"))
        self._postman: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._postman = asyncio.create_task(self.mailbox.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._postman is not None
        self._postman.cancel()
        await asyncio.gather(self._postman, return_exceptions=True)
        try:
            if error is None:
                await self.mailbox.flush()
        finally:
            await self._openai.close()
            await self._http.aclose()

    @property
    def num_answered(self) -> int:
        return sum(tally.turns for tally in self.tallies.values())

    async def play(self, num_turns: int) -> None:
        """Take `num_turns` turns: some more where users ask again, fewer where no problem is left."""
        left = iter(range(num_turns))

        async def take_turns() -> None:
            for _ in left:
                await self._visit()

        async with asyncio.TaskGroup() as group:
            for _ in range(min(TOGETHER, num_turns)):
                group.create_task(take_turns())
        assert self._postman is not None
        if self._postman.done():
            self._postman.result()  # raises Undelivered

    async def _visit(self) -> None:
        exercise = next(self._exercises, None)
        if exercise is None:
            self.is_spent = True
            return
        number, self._num_turns = self._num_turns, self._num_turns + 1
        user = self._users[number % len(self._users)]
        visit = number // (len(self._users) * TURNS_A_SESSION)
        session = f"edit-{self._benchmark.rpartition('@')[2]}-{self._seed}-{visit}-{user.name}"
        if await self._turn(user, exercise, session, attempt=0):
            await self._turn(user, exercise, session, attempt=1)

    async def _turn(self, user: User, exercise: Exercise, session: str, *, attempt: int) -> bool:
        """One exchange and the reaction to it; True when the user asks again."""
        reply = await self._openai.completions.create(
            model=self._model,
            prompt=exercise.prompt,
            stop=["\n"],
            temperature=1.0,
            max_tokens=MAX_TOKENS,
            user=user.name,
            extra_headers={"x-strop-session": session},
            extra_body={"metadata": {"problem": f"{self._benchmark}/{exercise.problem_id}", "slice": exercise.family}},
        )
        answer, answered_at = reply.choices[0].text, datetime.now(UTC)
        works = await self._workbench.passes(exercise, answer)
        rng = Random(f"{self._seed} {user.name} {exercise.problem_id} {attempt}")
        reaction = react(user, works=works, answer=answer, wanted=exercise.reference, is_retry=attempt > 0, rng=rng)
        self._note(reply.model, works, reaction.signals)
        for signal in reaction.signals:
            item = _item(signal, turn=reply.id, user=user.name, answered_at=answered_at)
            self.mailbox.post(item, due_in_s=signal.arrives_after_s)
            if signal.is_sent_twice:
                self.mailbox.post(item, due_in_s=signal.arrives_after_s + 1)
        return reaction.asks_again

    def _note(self, checkpoint: str, works: bool, signals: tuple[Signal, ...]) -> None:
        tally = self.tallies.setdefault(checkpoint, Tally())
        tally.turns += 1
        tally.works += works
        tally.kinds[signals[0].kind if signals else "silence"] += 1


def _item(signal: Signal, *, turn: str, user: str, answered_at: datetime) -> dict[str, Any]:
    return {
        "type": "signal",
        "id": str(uuid.uuid4()),
        "turn": turn,
        "kind": signal.kind,
        "value": signal.value,
        "text": signal.text,
        "at": (answered_at + timedelta(seconds=signal.after_s)).isoformat(),
        "user": user,
    }
