"""`two_ranks.py ROOT`, as rank 0 and as rank 1: what two ranks do, to be compared with one process."""

import json
import os
import shutil
import socket
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, os.getcwd())

import torch

from rl_online.training.distributed import Leader, follow, joined
from rl_online.training.update import learn_from_batch
from tests.rl_online.training.mixed_update import DTYPES, leave_after, make_mixed, run_mixed

LEARN = partial(learn_from_batch, open_trainer=Leader)


def lead(root: Path) -> None:
    for name, dtype in DTYPES.items():
        losses = run_mixed(make_mixed(root / f"two-{name}", dtype=dtype), learn=LEARN)
        (root / f"losses-{name}.json").write_text(json.dumps(losses))
    leave_after(make_mixed(root / "two-two"), step=2, learn=LEARN)
    shutil.copytree(root / "two-two", root / "two-one")  # which one process goes on from
    run_mixed(make_mixed(root / "two-two"), learn=LEARN)
    run_mixed(make_mixed(root / "one-two"), learn=LEARN)
    (root / "interface").write_text(" ".join(name for _, name in socket.if_nameindex() if name != "lo"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined("cpu") as is_leader:
        if is_leader:
            lead(Path(sys.argv[1]))
        else:
            follow()
