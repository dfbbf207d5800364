"""The demo's rounds: users take turns until enough is labelled, then wait while Strop learns, proves and decides.

What happens is told on standard error, one line a stage.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async

from rl_online.models import UpdateRun, UpdateState
from strop.demo import stage as staging
from strop.demo import users, watch
from strop.demo.crowd import NUM_USERS, Crowd
from strop.demo.stage import Stage

P = ParamSpec("P")
T = TypeVar("T")

LOOK_EVERY_S = 1.0
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


async def play_rounds(plan: Plan) -> dict[str, Any]:
    """The whole loop and what came of it. Raises LoopBroke, or an exception group of what users met."""
    stage = await in_thread(staging.set_stage, seed=plan.seed, minutes=plan.minutes, is_quick=plan.is_quick)
    say(f"{len(stage.exercises)} fresh problems wait in {stage.benchmark}; an update every {stage.every_turns} turns")
    await wait_for_engine(stage.project_id)
    outcomes: list[watch.Outcome] = []
    started = time.monotonic()
    first_promotion_s: float | None = None
    async with crowd_of(stage, plan) as crowd:
        while not outcomes or not (plan.is_quick or time.monotonic() - started > 60 * plan.minutes):
            run_id = await gather_turns(crowd, stage)
            if run_id is None:
                say("every problem has been asked; the loop ends here")
                break
            outcomes.append(await follow_update(stage.project_id, run_id))
            if outcomes[-1].state == UpdateState.PROMOTED and first_promotion_s is None:
                first_promotion_s = round(time.monotonic() - started, 1)
                say(f"first promotion {first_promotion_s:.0f} s after the loop's start")
    return {
        "project": staging.PROJECT,
        "project_id": str(stage.project_id),
        "policy": staging.POLICY,
        "benchmark": stage.benchmark,
        "seed": plan.seed,
        "seconds": round(time.monotonic() - started, 1),
        "first_promotion_s": first_promotion_s,
        "rounds": [asdict(outcome) for outcome in outcomes],
        "checkpoints": [row.to_json() for row in await in_thread(watch.rows, stage.project_id)],
        "events": dict(crowd.mailbox.outcomes),
        "crowd": {name: tally.to_json() for name, tally in crowd.tallies.items()},
    }


def crowd_of(stage: Stage, plan: Plan) -> Crowd:
    return Crowd(
        url=plan.url,
        key=stage.key,
        model=staging.POLICY,
        benchmark=stage.benchmark,
        exercises=iter(stage.exercises),
        users=users.crowd(seed=plan.seed, size=NUM_USERS),
        seed=plan.seed,
    )


async def wait_for_engine(project_id: UUID) -> None:
    """Until the serving checkpoint can answer. Raises LoopBroke when no engine takes it."""
    deadline = time.monotonic() + ENGINE_LIMIT_S
    while not await in_thread(watch.is_served, project_id):
        if time.monotonic() > deadline:
            raise LoopBroke(f"no engine holds the serving checkpoint after {ENGINE_LIMIT_S:.0f} s; see engine.log")
        await asyncio.sleep(LOOK_EVERY_S)


async def gather_turns(crowd: Crowd, stage: Stage) -> UUID | None:
    """Let users take turns until an update starts; its id, None when there is nothing left to ask.

    Raises LoopBroke when an update is due and none starts.
    """
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
            await play_aloud(crowd, max(short, SMALLEST_ROUND))
            await wait_for_labels(stage)
            continue
        due_since = due_since or time.monotonic()
        if time.monotonic() - due_since > STARTS_WITHIN_S:
            raise LoopBroke(f"{now.num_ready} labelled turns are ready, but no update started")
        await asyncio.sleep(LOOK_EVERY_S)


async def play_aloud(crowd: Crowd, num_turns: int) -> None:
    """Play, tell every ten seconds how far it is, and at the end how well each checkpoint answered."""
    before = {name: (tally.turns, tally.works) for name, tally in crowd.tallies.items()}
    begun, already = time.monotonic(), crowd.num_answered
    playing = asyncio.create_task(crowd.play(num_turns))
    while not (await asyncio.wait({playing}, timeout=TELL_EVERY_S))[0]:
        done = crowd.num_answered - already
        rate = done / (time.monotonic() - begun)
        left = f", {max(num_turns - done, 0) / rate:.0f} s left" if done else ""
        say(f"{done} of {num_turns} turns, {rate:.1f} a second{left}")
    await playing
    tell_turns(crowd, before, seconds=time.monotonic() - begun)


def tell_turns(crowd: Crowd, before: Mapping[str, tuple[int, int]], *, seconds: float) -> None:
    for name, tally in crowd.tallies.items():
        turns, works = before.get(name, (0, 0))
        if num := tally.turns - turns:
            share = (tally.works - works) / num
            say(f"{num} turns with {name} in {seconds:.0f} s: {share:.1%} of the answers worked")


async def wait_for_labels(stage: Stage) -> None:
    """Until enough turns are labelled, or all that can come has come."""
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        now = await in_thread(watch.standing, stage.project_id)
        if now.running is not None or now.num_ready >= stage.every_turns:
            return
        await asyncio.sleep(LOOK_EVERY_S)
    say(f"{now.num_ready} of {stage.every_turns} turns are labelled")


async def follow_update(project_id: UUID, run_id: UUID) -> watch.Outcome:
    """Tell how the update goes; its outcome. Raises LoopBroke when it fails or takes too long."""
    deadline = time.monotonic() + UPDATE_LIMIT_S
    told: tuple[str, int] | None = None
    while True:
        run = await in_thread(watch.current, project_id, run_id)
        if told != (run.state, run.step):
            told = (run.state, run.step)
            tell_progress(run)
        if run.state == UpdateState.WAITING or UpdateState(run.state).is_over:
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


def tell_progress(run: UpdateRun) -> None:
    if run.state == UpdateState.TRAINING and run.num_steps:
        rate = f", {run.tokens_per_s:.0f} tokens/s" if run.tokens_per_s else ""
        left = f", {run.seconds_left:.0f} s left" if run.step and run.seconds_left is not None else ""
        say(f"update v{run.version}: step {run.step}/{run.num_steps}{rate}{left}")
    else:
        say(f"update v{run.version}: {run.state}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what reads the database where it may block."""
    return await sync_to_async(function)(*args, **kwargs)
