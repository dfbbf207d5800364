"""`python -m rl_online.commands.updater`: the long-lived process that learns.

Claims one UpdateRun after the other, trains it, publishes the checkpoint and registers it. SIGTERM gives the run back.
A database that is away is waited for.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from rl_online.services.dry_runs import Trial, Tried
    from rl_online.services.runs import Order, StepRow
    from rl_online.services.updater import Made, Trained
    from rl_online.training.dry_run import DryRunResult
    from rl_online.training.update import Progress, UpdateRequest, UpdateResult

    Run = Callable[..., Trained | Made]  # of (request, *, on_progress, is_cancelled, crash), as `run_update`
    RunDry = Callable[..., DryRunResult]  # of (request, *, is_cancelled), as `run_dry`

POLL_EVERY_S = 0.5
BEAT_EVERY_S = 5.0
UPDATER_QUEUE = "updater"

log = logging.getLogger("updater")


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")
    os.environ["STROP_DB_POOL"] = "0"  # two long-lived connections, one for each thread
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    django.setup()
    import torch
    from django.conf import settings
    from django.db import connections

    import rl_online.training.dry_run
    import rl_online.training.update  # noqa: F401 - loaded now, not in the first update's time

    # Equal thread counts are part of bit-equal weights.
    torch.set_num_threads(settings.THREADS or os.cpu_count() or 1)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    work(stopping)
    connections.close_all()
    logging.shutdown()
    os._exit(0)  # taking torch apart takes seconds, and whoever stops us waits


def work(stopping: threading.Event) -> None:
    """Claim and train until told to stop."""
    from django.db import InterfaceError, OperationalError, connection

    from jobs import handlers
    from jobs.services import claim_next, run, worker_name
    from rl_online.services import corpora, dry_runs, updater
    from rl_online.services.sealing import UPDATE_JOB

    beat = every(BEAT_EVERY_S, beat_from(datetime.now(UTC)))
    handlers.register(
        UPDATE_JOB,
        lambda job: updater.update(job, train, stopping=stopping, beat=beat),
        queue=UPDATER_QUEUE,
    )
    handlers.register(
        dry_runs.DRY_RUN_JOB,
        lambda job: dry_runs.dry_run_job(job, try_samples, beat=beat),
        queue=UPDATER_QUEUE,
    )
    handlers.register(
        corpora.CORPUS_JOB,
        lambda job: corpora.build_job(job, beat=beat, is_stopping=stopping.is_set),
        queue=UPDATER_QUEUE,
    )
    log.info("updater ready")
    while not stopping.is_set():
        try:
            beat()
            job = claim_next([UPDATER_QUEUE], worker_name())
            if job is not None:
                run(job)
                continue
        except (OperationalError, InterfaceError) as error:
            log.warning("the database is away: %s", error)
            connection.close()
        stopping.wait(POLL_EVERY_S)


def runners() -> "dict[str, Run]":
    """Who trains which kind of update; each takes an UpdateRequest and reports, stops and goes on as `run_update`."""
    by_update = ("online", "sft", "pairs", "distill")
    return {
        **dict.fromkeys(by_update, train_checkpoint),
        "midtrain": train_on_corpus,
        "ppo": train_by_ppo,
        "reward_model": train_reward_model,
    }


def dry_runners() -> "dict[str, RunDry]":
    """Who tries a few samples of which kind; each takes a DryRunRequest."""
    from rl_online.training.dry_run import run_dry
    from rl_online.training.reward_model import run_dry_pairs

    by_update = ("online", "sft", "pairs", "midtrain", "distill")
    return {**dict.fromkeys(by_update, run_dry), "reward_model": run_dry_pairs}


def train_on_corpus(request: "UpdateRequest", **hooks: Any) -> "Trained":
    """`run_update` that learns the rows of a corpus, as a runner."""
    from rl_online.training.midtrain import learn_from_corpus

    return train_checkpoint(request, learn=learn_from_corpus, **hooks)


def train_checkpoint(request: "UpdateRequest", **hooks: Any) -> "Trained":
    """`run_update` as a runner, in this process or over ranks."""
    from django.conf import settings

    from rl_online.training.update import run_update

    is_shared = settings.TRAINER == "torchrun" and request.kind != "distill"  # a teacher is asked in one process
    return _trained((run_over_ranks if is_shared else run_update)(request, **hooks))


def train_by_ppo(request: "UpdateRequest", **hooks: Any) -> "Trained":
    """`run_ppo` as a runner, in this process: its answers are drawn where it learns."""
    from rl_online.training.ppo import run_ppo

    return _trained(run_ppo(request, **hooks))


def train_reward_model(request: "UpdateRequest", **hooks: Any) -> "Made":
    """`run_reward_model` as a runner."""
    from rl_online.services.updater import Made
    from rl_online.training.reward_model import run_reward_model

    made = run_reward_model(request, **hooks)
    result = {"tree_digest": made.tree_digest, "num_bytes": made.num_bytes, "report": made.report}
    return Made(result=result, timings={"train": round(made.train_s, 3)})


def _trained(result: "UpdateResult") -> "Trained":
    from rl_online.services.updater import Trained

    return Trained(
        tree_digest=result.tree_digest,
        num_bytes=result.num_bytes,
        optimizer_step=result.optimizer_step,
        timings={"train": round(result.train_s, 3), "publish": round(result.publish_s, 3)},
    )


def run_over_ranks(
    request: "UpdateRequest",
    *,
    on_progress: "Callable[[Progress], None]",
    is_cancelled: Callable[[], bool],
    **_: Any,
) -> "UpdateResult":
    """`run_update` in processes of their own, which find out themselves how to learn and where to crash for a test."""
    import torch
    from django.conf import settings

    from rl_online.training.torchrun import run_on_ranks

    num_ranks = settings.TRAINER_RANKS or torch.cuda.device_count() or 1
    return run_on_ranks(
        request,
        on_progress=on_progress,
        is_cancelled=is_cancelled,
        num_ranks=num_ranks,
        num_threads=max(1, torch.get_num_threads() // num_ranks),
    )


def train(order: "Order", on_step: "Callable[[StepRow], None]", should_stop: Callable[[], bool]) -> "Trained | Made":
    """The runner of an order's kind as the loop's services see it."""
    from django.conf import settings

    from jobs import crash
    from rl_online.rewards.update_config import UpdateConfig
    from rl_online.services.runs import StepRow
    from rl_online.services.updater import Cancelled, Diverged, Hopeless
    from rl_online.training.update import UpdateCancelled, UpdateDiverged, UpdateFailed, UpdateRequest

    def on_progress(progress: "Progress") -> None:
        on_step(
            StepRow(
                step=progress.step,
                num_steps=progress.num_steps,
                metrics=progress.metrics,
                tokens_per_s=progress.tokens_per_s,
                seconds_left=progress.seconds_left,
            )
        )

    request = UpdateRequest(
        parent_folder=order.parent_folder,
        batch_folder=order.batch_folder,
        base_folder=order.base_folder,
        out_folder=order.out_folder,
        deltas_root=order.deltas_root,
        policy=str(order.policy_id),
        version=order.version,
        parent_version=order.parent_version,
        lineage=order.lineage,
        seed=order.seed,
        device=settings.DEVICE,
        config=UpdateConfig.from_json(dict(order.config)),
        reward_spec=order.reward_spec,
        code_version=settings.CODE_VERSION,
        kind=order.kind,
        inputs=order.inputs,
        folders=order.folders,
        texts_folder=settings.HOME.texts,
    )
    run = runners()[order.kind]
    try:
        return run(request, on_progress=on_progress, is_cancelled=should_stop, crash=crash.point)
    except UpdateCancelled as error:
        raise Cancelled from error
    except UpdateDiverged as error:
        raise Diverged(str(error)) from error
    except UpdateFailed as error:
        raise Hopeless(str(error)) from error


def try_samples(trial: "Trial", should_stop: Callable[[], bool]) -> "Tried":
    """The dry runner of a trial's kind as the loop's services see it."""
    from django.conf import settings

    from rl_online.rewards.batch import read_batch
    from rl_online.rewards.update_config import UpdateConfig
    from rl_online.services.dry_runs import Tried
    from rl_online.services.updater import Cancelled, Hopeless
    from rl_online.training.dry_run import DryRunRequest
    from rl_online.training.update import UpdateCancelled, UpdateFailed

    request = DryRunRequest(
        parent_folder=trial.parent_folder,
        base_folder=trial.base_folder,
        batch=read_batch(trial.batch_folder),
        lineage=trial.lineage,
        seed=trial.seed,
        device=settings.DEVICE,
        config=UpdateConfig.from_json(dict(trial.config)),
        kind=trial.kind,
        inputs=trial.inputs,
        folders=trial.folders,
    )
    run_dry = dry_runners()[trial.kind]
    try:
        seen = run_dry(request, is_cancelled=should_stop)
    except UpdateCancelled as error:
        raise Cancelled from error
    except UpdateFailed as error:
        raise Hopeless(str(error)) from error
    return Tried(
        steps=seen.steps,
        load_s=round(seen.load_s, 3),
        seconds=round(seen.seconds, 3),
        tokens_per_s=seen.tokens_per_s,
        peak_bytes=seen.peak_bytes,
        device=seen.device,
    )


def beat_from(started_at: datetime) -> Callable[[], None]:
    from django.conf import settings

    from jobs.services import record_beat

    return lambda: record_beat("updater", "updater", started_at=started_at, version=settings.CODE_VERSION)


def every(seconds: float, function: Callable[[], None]) -> Callable[[], None]:
    """`function`, but at most once in so many seconds."""
    next_at = time.monotonic()

    def call() -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + seconds
            function()

    return call


if __name__ == "__main__":
    main()
