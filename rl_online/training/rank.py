"""`torchrun -m rl_online.training.rank FOLDER`: one rank of an update, see torchrun.py."""

import sys
from functools import partial
from pathlib import Path

import msgspec
import torch

from jobs import crash
from rl_online.training.apply import Progress
from rl_online.training.distributed import Leader, PassesTooLarge, follow, joined
from rl_online.training.errors import UpdateCancelled, UpdateFailed
from rl_online.training.lifeline import end_with_starter
from rl_online.training.midtrain import learn_from_corpus
from rl_online.training.torchrun import ENDING, ORDER, STEPS, STOP, TOO_LARGE, Ending, RankOrder, read_json, write_json
from rl_online.training.update import learn_from_batch, run_update


def main(folder: Path) -> None:
    end_with_starter()
    order: RankOrder = read_json(folder / ORDER, RankOrder)
    torch.set_num_threads(order.num_threads)
    try:
        with joined(order.request.device) as is_leader:
            if is_leader:
                write_json(folder / ENDING, lead(order, folder))
            else:
                follow()
    except PassesTooLarge as error:
        write_json(folder / TOO_LARGE, error.max_tokens)
        raise


def lead(order: RankOrder, folder: Path) -> Ending:
    def on_progress(progress: Progress) -> None:
        with (folder / STEPS).open("ab") as handle:
            handle.write(msgspec.json.encode(progress) + b"\n")

    learn = learn_from_corpus if order.request.kind == "midtrain" else learn_from_batch
    try:
        result = run_update(
            order.request,
            on_progress=on_progress,
            is_cancelled=(folder / STOP).exists,
            crash=crash.point,
            learn=partial(learn, open_trainer=partial(Leader, max_tokens=order.max_tokens)),
        )
    except (UpdateFailed, UpdateCancelled) as error:
        return Ending(error=type(error).__name__, message=str(error))
    return Ending(result=result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
