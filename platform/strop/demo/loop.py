"""The demo's rounds: users take turns until enough is labelled, then wait while Strop learns, proves and decides.

A program of its own beside the processes of `strop up`: `python -m strop.demo.loop '{"seed": 0, ...}'`. What happens
is told on standard error, one line a stage; the result is one JSON object on standard output.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import django
import openai

from strop.demo.mailbox import Undelivered

P = ParamSpec("P")
T = TypeVar("T")

LOOK_EVERY_S = 0.5
TELL_EVERY_S = 10.0
SETTLE_S = 7.0  # longer than the decision window: by then every turn has its label
SMALLEST_ROUND = 32  # a full batch of the engine
STARTS_WITHIN_S = 30.0  # an update that is due but does not start by then is a fault
UPDATE_LIMIT_S = 900.0
ENGINE_LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    seed: int
    minutes: float  # no new round begins after this
    is_quick: bool  # one update, then the end
    url: str


class LoopBroke(Exception):
    """The loop did not go all the way; the message says where it stopped."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def play_rounds(plan: Plan) -> dict[str, Any]:
    from strop.demo import stage as staging
    from strop.demo import watch
    from strop.demo.crowd import NUM_USERS, Crowd
    from strop.demo.users import crowd as draw_crowd

    stage = await in_thread(staging.set_stage, seed=plan.seed, minutes=plan.minutes, is_quick=plan.is_quick)
    say(f"{len(stage.exercises)} fresh problems wait in {stage.benchmark}; an update every {stage.every_turns} turns")
    await wait_for_engine(stage.project_id)
    outcomes: list[watch.Outcome] = []
    started = time.monotonic()
    first_promotion_s: float | None = None
    async with Crowd(
        url=plan.url,
        key=stage.key,
        model=staging.POLICY,
        benchmark=stage.benchmark,
        exercises=iter(stage.exercises),
        users=draw_crowd(seed=plan.seed, size=NUM_USERS),
        seed=plan.seed,
    ) as crowd:
        while not outcomes or not (plan.is_quick or time.monotonic() - started > 60 * plan.minutes):
            run_id = await gather_turns(crowd, stage)
            if run_id is None:
                say("every problem has been asked; the loop ends here")
                break
            outcome = await follow_update(stage.project_id, run_id)
            outcomes.append(outcome)
            if outcome.state == "promoted" and first_promotion_s is None:
                first_promotion_s = time.monotonic() - started
                say(f"first promotion {first_promotion_s:.0f} s after the first turn")
    seconds = time.monotonic() - started
    return {
        "project": staging.PROJECT,
        "project_id": str(stage.project_id),
        "policy": staging.POLICY,
        "seed": plan.seed,
        "seconds": round(seconds, 1),
        "first_promotion_s": first_promotion_s and round(first_promotion_s, 1),
        "rounds": [vars_of(outcome) for outcome in outcomes],
        "checkpoints": [row.to_json() for row in await in_thread(watch.rows, stage.project_id)],
        "events": dict(crowd.mailbox.outcomes),
        "crowd": {
            name: {"turns": tally.turns, "worked": tally.works, "reactions": dict(tally.kinds)}
            for name, tally in crowd.tallies.items()
        },
        "key": stage.key,
        "benchmark": stage.benchmark,
    }


async def wait_for_engine(project_id: UUID) -> None:
    """Until the serving checkpoint can answer. Raises LoopBroke when no engine takes it."""
    from strop.demo import watch

    deadline = time.monotonic() + ENGINE_LIMIT_S
    while not await in_thread(watch.is_served, project_id):
        if time.monotonic() > deadline:
            raise LoopBroke(f"no engine holds the serving checkpoint after {ENGINE_LIMIT_S:.0f} s; see engine.log")
        await asyncio.sleep(LOOK_EVERY_S)


async def gather_turns(crowd: Any, stage: Any) -> UUID | None:
    """Let users take turns until an update starts; its id, None when there is nothing left to ask.

    Raises LoopBroke when an update is due and none starts.
    """
    from strop.demo import watch

    due_since: float | None = None
    while True:
        now = await in_thread(watch.standing, stage.project_id)
        if now.running is not None:
            return now.running.id
        short = stage.every_turns - now.num_ready
        if short > 0 and crowd.is_spent:
            return None
        if short > 0:
            due_since = None
            before = {name: (tally.turns, tally.works) for name, tally in crowd.tallies.items()}
            begun = time.monotonic()
            await play_aloud(crowd, max(short, SMALLEST_ROUND))
            tell_turns(crowd, before, time.monotonic() - begun)
            await wait_for_labels(crowd, stage)
        else:
            due_since = due_since or time.monotonic()
            if time.monotonic() - due_since > STARTS_WITHIN_S:
                raise LoopBroke(f"{now.num_ready} labelled turns are ready, but no update started")
            await asyncio.sleep(LOOK_EVERY_S)


async def play_aloud(crowd: Any, num_turns: int) -> None:
    """Play, and tell every ten seconds how far it is."""
    begun, already = time.monotonic(), crowd.num_answered
    playing = asyncio.create_task(crowd.play(num_turns))
    while not (await asyncio.wait({playing}, timeout=TELL_EVERY_S))[0]:
        done = crowd.num_answered - already
        rate = done / (time.monotonic() - begun)
        left = f", {max(num_turns - done, 0) / rate:.0f} s left" if done else ""
        say(f"{done} of {num_turns} turns, {rate:.1f} a second{left}")
    await playing


def tell_turns(crowd: Any, before: dict[str, tuple[int, int]], seconds: float) -> None:
    for name, tally in crowd.tallies.items():
        turns, works = before.get(name, (0, 0))
        num = tally.turns - turns
        if num:
            share = (tally.works - works) / num
            say(f"{num} turns with {name} in {seconds:.0f} s: {share:.1%} of the answers worked")


async def wait_for_labels(crowd: Any, stage: Any) -> None:
    """Until enough turns are labelled, or all that can come has come."""
    from strop.demo import watch

    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        now = await in_thread(watch.standing, stage.project_id)
        if now.running is not None or now.num_ready >= stage.every_turns:
            return
        await asyncio.sleep(LOOK_EVERY_S)
    say(f"{now.num_ready} of {stage.every_turns} turns are labelled")


async def follow_update(project_id: UUID, run_id: UUID) -> Any:
    """Tell how the update goes; its outcome. Raises LoopBroke when it fails or takes too long."""
    from strop.demo import watch

    deadline = time.monotonic() + UPDATE_LIMIT_S
    told: tuple[str, int] | None = None
    while True:
        run = await in_thread(watch.current, project_id, run_id)
        if told != (run.state, run.step):
            told = (run.state, run.step)
            tell_progress(run)
        if run.state in ("promoted", "held", "failed", "cancelled", "waiting"):
            break
        if time.monotonic() > deadline:
            raise LoopBroke(f"update v{run.version} is still {run.state} after {UPDATE_LIMIT_S:.0f} s")
        await asyncio.sleep(LOOK_EVERY_S)
    outcome = await in_thread(watch.outcome, project_id, run_id)
    if not outcome.is_complete:
        raise LoopBroke(f"update v{outcome.version} ended {outcome.state}: {outcome.error or 'no reason given'}")
    say(f"gate: {outcome.decision} v{outcome.version} after {outcome.seconds or 0:.0f} s")
    for reason in outcome.reasons:
        say(f"  {reason}")
    return outcome


def tell_progress(run: Any) -> None:
    if run.state == "training" and run.num_steps:
        rate = f", {run.tokens_per_s:.0f} tokens/s" if run.tokens_per_s else ""
        left = f", {run.seconds_left:.0f} s left" if run.seconds_left is not None else ""
        say(f"update v{run.version}: step {run.step}/{run.num_steps}{rate}{left}")
    else:
        say(f"update v{run.version}: {run.state}")


def vars_of(outcome: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(outcome)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what reads the database where it may block."""
    from asgiref.sync import sync_to_async

    return await sync_to_async(function)(*args, **kwargs)


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")
    os.environ.setdefault("TQDM_DISABLE", "1")  # this output is read by lines
    django.setup()
    plan = Plan(**json.loads(sys.argv[1]))
    try:
        result = asyncio.run(play_rounds(plan))
    except* LoopBroke as broken:
        say(f"the loop broke: {broken.exceptions[0]}")
    except* (openai.APIError, Undelivered) as refused:
        say(f"the loop broke: {len(refused.exceptions)} users were refused, the first: {refused.exceptions[0]}")
    else:
        json.dump(result, sys.stdout)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
