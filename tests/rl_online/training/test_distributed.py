"""Two processes that share a network are compared with one. Their imports are what this file costs: few starts."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training import torchrun
from rl_online.training.distributed import Leader, PassesTooLarge, ShardedTrainer, joined, refuse_for_ranks
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.local import LocalTrainer
from rl_online.training.rank import lead
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.torchrun import STEPS, STOP, RankOrder, RanksDied, run_on_ranks
from rl_online.weights.manifest import read_manifest
from tests.conftest import unavailable
from tests.rl_online.training.mixed_update import DTYPES, assert_close, leave_after, make_mixed, masters_of, run_mixed
from tests.rl_online.training.tiny_update import state_bytes

SCRIPT = Path(__file__).with_name("two_ranks.py")
ADDRESSES = ("10.213.47.1", "10.213.47.2")
WAITS = """
import os, time
from rl_online.training.lifeline import end_with_starter
end_with_starter()
open(os.path.join(os.environ["PIDS"], "pid" + os.environ["RANK"]), "w").write(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder with updates by one process and by two: in network namespaces of their own, where that is possible."""
    root = tmp_path_factory.mktemp("shared")
    losses = {name: run_mixed(make_mixed(root / f"one-{name}", dtype=dtype)) for name, dtype in DTYPES.items()}
    leave_after(make_mixed(root / "one-two"), step=2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with namespaces() as (places, interface):
        done = [start(root, rank, places[rank], interface, port) for rank in range(2)]
        assert [one.wait(timeout=240) for one in done] == [0, 0]
    run_mixed(make_mixed(root / "two-one"))
    return root, losses, interface


@contextlib.contextmanager
def namespaces():
    """(what to put before the command of each rank, the name of the interface between them)."""
    names = [f"strop-{os.getpid()}-{rank}" for rank in range(2)]
    try:
        if connect(*names):
            yield [["ip", "netns", "exec", name] for name in names], "strop0"
        else:
            yield [[], []], "lo"
    finally:
        for name in names:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)


def connect(*names):
    """Whether two new namespaces could be made, with a cable between them."""
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "strop0", "netns", names[0], "type", "veth", "peer", "name", "strop0", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "strop0")
            for interface in ("strop0", "lo"):
                ip("-n", name, "link", "set", interface, "up")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def start(root, rank, place, interface, port):
    address = ADDRESSES[0] if place else "127.0.0.1"
    settings = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": address, "MASTER_PORT": port,
                "GLOO_SOCKET_IFNAME": interface, "OMP_NUM_THREADS": 1}  # fmt: skip
    command = [*place, sys.executable, str(SCRIPT), str(root)]
    return subprocess.Popen(command, env=os.environ | {name: str(value) for name, value in settings.items()})


@pytest.mark.parametrize("name", DTYPES)
def test_two_ranks_end_with_the_weights_and_moments_of_one_process(shared, name):
    root, _, _ = shared
    one, two = (masters_of(make_mixed(root / f"{ranks}-{name}", dtype=DTYPES[name])) for ranks in ("one", "two"))
    assert_close(two, one)


def test_two_ranks_report_the_losses_of_one_process(shared):
    root, losses, _ = shared
    for name in DTYPES:
        assert json.loads((root / f"losses-{name}.json").read_text()) == pytest.approx(losses[name], abs=1e-6)


def test_two_ranks_that_stopped_go_on_to_the_same_bits(shared):
    root, _, _ = shared
    straight, resumed = (make_mixed(root / name) for name in ("two-fp32", "two-two"))
    assert read_manifest(resumed.out_folder).tree_digest == read_manifest(straight.out_folder).tree_digest
    assert state_bytes(resumed) == state_bytes(straight)


@pytest.mark.parametrize("name", ["one-two", "two-one"])
def test_an_update_goes_on_with_another_number_of_ranks(shared, name):
    root, _, _ = shared
    assert_close(masters_of(make_mixed(root / name)), masters_of(make_mixed(root / "one-fp32")))


def test_the_ranks_met_across_two_network_namespaces(shared):
    root, _, interface = shared
    if interface == "lo" and (os.geteuid() != 0 or shutil.which("ip") is None):
        unavailable("network namespaces need root and the command ip; the ranks met on this machine's loopback")
    if interface == "lo":
        pytest.skip("this kernel lets nobody make a network namespace; the ranks met on this machine's loopback")
    assert (root / "interface").read_text() == interface


@pytest.fixture
def alone(monkeypatch):
    """This process as the only rank."""
    settings = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))
    with joined("cpu") as is_leader:
        assert is_leader
        yield


def test_a_rank_tells_its_starter_of_steps_and_result_and_stops_when_told(alone, tmp_path):
    request, folder = make_mixed(tmp_path), tmp_path / "run"
    folder.mkdir()
    (folder / STOP).touch()
    order = RankOrder(request=request, num_threads=1)
    stopped = lead(order, folder)
    assert (stopped.error, stopped.message) == ("UpdateCancelled", "cancelled before step 1 of 3")
    (folder / STOP).unlink()
    (folder / STEPS).unlink()
    assert lead(order, folder).result.optimizer_step == 3
    assert [json.loads(line)["step"] for line in (folder / STEPS).read_text().splitlines()] == [0, 1, 2, 3]


def test_a_shared_network_draws_what_one_process_draws(alone, tmp_path):
    request = make_mixed(tmp_path)
    options = {"config": request.config, "device": "cpu", "seed": 3}
    trainers = [kind(request.parent_folder, **options) for kind in (LocalTrainer, Leader)]
    drawn, also = (one.sample([[2, 3], [4]], max_new_tokens=5, temperature=1.0) for one in trainers)
    assert [one.token_ids for one in drawn] == [one.token_ids for one in also]


def test_where_memory_runs_out_all_ranks_are_to_start_again_with_smaller_passes(alone, tmp_path, monkeypatch):
    request = make_mixed(tmp_path)
    trainer = ShardedTrainer(request.parent_folder, config=request.config, device="cpu", seed=0)
    samples = [TrainingSample(token_ids=[2, 3, 4], positions=[1], weights={Stream.CE: 1.0}, reward=0.0)] * 8
    monkeypatch.setattr(trainer.model, "run_whole", out_of_memory)
    with pytest.raises(PassesTooLarge) as error:
        trainer.logprobs(samples)
    assert error.value.max_tokens == 12  # half of the eight that fitted into one pass


def out_of_memory(work):
    raise torch.OutOfMemoryError("no more")


@pytest.mark.parametrize(
    "changes, num_ranks, message",
    [
        ({"optimizer": "muon"}, 1, "whole matrices"),
        ({"optimizer": "muon"}, 2, "whole matrices"),
        ({"lora_rank": 4}, 1, "set it to 0"),
        ({"lora_rank": 4}, 2, "set it to 0"),
        ({"distill_weight": 1.0}, 2, "teacher"),
    ],
)
def test_what_sharded_weights_or_several_processes_cannot_do_is_refused(changes, num_ranks, message):
    with pytest.raises(ContradictoryUpdate, match=message):
        refuse_for_ranks(UpdateConfig(**changes), num_ranks)


def test_one_rank_may_ask_a_teacher():
    refuse_for_ranks(UpdateConfig(distill_weight=1.0), 1)


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """The file of each rank's process id, of ranks that only wait."""
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    monkeypatch.setattr(torchrun, "PROGRAM", (str(script),))
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setenv("PIDS", str(tmp_path))
    return [tmp_path / f"pid{rank}" for rank in range(2)]


def test_a_rank_that_is_killed_ends_the_run_and_the_other_ranks(waiting, tmp_path):
    def kill_one():
        with contextlib.suppress(ProcessLookupError):
            if all(path.exists() and path.read_text() for path in waiting):
                os.kill(int(waiting[1].read_text()), signal.SIGKILL)

    request = make_mixed(tmp_path)
    with pytest.raises(RanksDied, match="ended with code 1"):
        run_on_ranks(request, on_progress=print, is_cancelled=kill_one, num_ranks=2, num_threads=1)
    assert not any(is_alive(int(path.read_text())) for path in waiting)


def test_ranks_end_with_an_updater_that_is_killed(waiting, tmp_path):
    updater = os.fork()
    if updater == 0:
        with torchrun._started(tmp_path, 2, 1):
            time.sleep(600)
    pids = [int(wait_for(path)) for path in waiting]
    os.kill(updater, signal.SIGKILL)
    os.waitpid(updater, 0)
    deadline = time.monotonic() + 60
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a rank outlived its updater"
        time.sleep(0.05)


def wait_for(path):
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path.name} was never written"
        time.sleep(0.05)
    return path.read_text()


def is_alive(pid):
    """False for a zombie too: nobody may have waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
