"""What this machine offers: Python, disk, memory, semaphores, torch, the sandbox. Needs neither Django nor a server."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

from strop.doctor.finding import Finding, broken, ok, skipped, warning
from strop.home import Home
from strop.local.ports import is_free

MIN_PYTHON = (3, 11)
LITTLE_DISK, TIGHT_DISK = 1e9, 10e9  # bytes
LITTLE_MEMORY = 2e9  # PostgreSQL, web, two workers, engine and updater with the default model take about this
TORCH_S = 120
TORCH_CODE = """
import json, torch
cuda = torch.cuda.is_available()
bf16 = torch.cuda.is_bf16_supported() if cuda else bool((torch.ones(2, dtype=torch.bfloat16) + 1)[0] == 2)
name = torch.cuda.get_device_name() if cuda else "cpu"
print(json.dumps({"version": torch.__version__, "device": name, "bf16": bf16, "threads": torch.get_num_threads()}))
"""


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < MIN_PYTHON:
        return broken("python", version, why="Strop needs 3.11 or newer.", fix="Make the environment with python3.11.")
    return ok("python", version)


def disk(home: Home) -> Finding:
    """Of the home and, as root, of the servers' data, which lies elsewhere: whichever has less."""
    usage = {place: shutil.disk_usage(nearest(place)) for place in (home.root, home.server_root)}
    place = min(usage, key=lambda one: usage[one].free)
    found = f"{usage[place].free / 1e9:.1f} of {usage[place].total / 1e9:.1f} GB free at {place}"
    why = "A full disk stops PostgreSQL, and no update can save its checkpoint."
    fix = "Free some: strop gc --dry-run shows what retention would delete. Or move the home to a larger disk."
    if usage[place].free < LITTLE_DISK:
        return broken("disk", found, why=why, fix=fix)
    return warning("disk", found, why=why, fix=fix) if usage[place].free < TIGHT_DISK else ok("disk", found)


def nearest(folder: Path) -> Path:
    """The folder itself, or the first above it that is there."""
    return next(place for place in (folder, *folder.parents) if os.path.exists(place))


def memory() -> Finding:
    free, total = _available_memory(), _total_memory()
    found = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB available"
    if free < LITTLE_MEMORY:
        why = "All processes with the default model take about 2 GB; the kernel ends one when memory is out."
        return warning("memory", found, why=why, fix="Stop something else, or give the machine or container more.")
    return ok("memory", found)


def semaphores() -> Finding:
    """Celery's worker processes meet at POSIX semaphores, which live in /dev/shm."""
    try:
        multiprocessing.get_context("fork").Semaphore(1)
    except (OSError, ImportError) as error:
        return broken(
            "semaphores",
            f"a POSIX semaphore cannot be made: {error}",
            why="Celery's worker does not start without them, and no job is done.",
            fix="As root: mount -t tmpfs -o mode=1777 tmpfs /dev/shm (in a container: --shm-size=64m, or a /dev/shm "
            "that its user may write to).",
        )
    return ok("semaphores", "POSIX semaphores can be made")


def port(host: str, number: int, *, is_running: bool) -> Finding:
    name = f"{host}:{number}"
    if is_running:
        return ok("port", "Strop itself listens")
    try:
        free = is_free(host, number)
    except OSError as error:
        why = "Pages and the API cannot be reached there."
        return broken("port", f"{name}: {error}", why=why, fix="Choose an address of this machine: strop up --host.")
    if not free:
        why = "Somebody else listens there, so strop up would not start."
        return broken("port", f"{name} is taken", why=why, fix="strop up --port 0 takes a free one.")
    return ok("port", f"{name} is free")


def torch() -> Finding:
    """In a process of its own: importing torch takes seconds, and only engine and updater may hold it."""
    why = "Engine and updater need it; nothing can be served from here or learnt."
    fix = "pip install -e '.[local]', or 'torch<2.14' from the index that fits this machine."
    try:
        asked = subprocess.run(
            [sys.executable, "-c", TORCH_CODE], capture_output=True, text=True, timeout=TORCH_S, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return warning("torch", f"did not import within {TORCH_S} s", why=why, fix="Look for a slow or broken disk.")
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        return broken("torch", last[:300], why=why, fix=fix)
    said = json.loads(asked.stdout.strip().splitlines()[-1])
    found = (
        f"{said['version']} on {said['device']}, {said['threads']} threads, bfloat16 {'yes' if said['bf16'] else 'no'}"
    )
    if not said["bf16"]:
        return warning("torch", found, why="Checkpoints are kept in bfloat16.", fix="Use a newer device or torch.")
    return ok("torch", found)


def sandbox(*, allow_none: bool) -> Finding:
    """The level that reward code runs at, and what a better one would need."""
    from evals.scorers.sandbox.confinement import probe
    from evals.scorers.sandbox.host import LEVELS, Sandbox, SandboxUnavailable

    kernel = probe()
    parts = [
        f"Landlock {f'ABI {kernel.landlock_abi}' if kernel.landlock_abi else 'missing'}",
        f"seccomp {'works' if kernel.seccomp else 'missing'}",
        f"bubblewrap {'installed' if shutil.which('bwrap') else 'not installed'}",
    ]
    why = "Model output is run as code to score it; the weaker the walls, the more a bad answer can reach."
    fix = "A kernel with Landlock (5.13 or newer, lsm=landlock) gives the best; else install bubblewrap."
    try:
        level = Sandbox(allow_none=allow_none).level
    except SandboxUnavailable as error:
        return broken("sandbox", f"{error} ({', '.join(parts)})", why=f"{why} Such turns stay unscored.", fix=fix)
    found = f"{level} ({', '.join(parts)})"
    if level == LEVELS[-1]:
        return ok("sandbox", found)
    return (broken if level == "none" else warning)("sandbox", found, why=why, fix=fix)


def model_store(home: Home) -> Finding:
    folders = sorted(path.name for path in home.models.glob("*") if (path / "MANIFEST.json").is_file())
    if not folders:
        return skipped("models", "no model in the store yet: strop models add smollm2 --name editor")
    return ok("models", ", ".join(folders))


def _available_memory() -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = float(lines["MemAvailable"].split()[0]) * 1024
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    return min(free, limit - used) if limit is not None and used is not None else free


def _total_memory() -> float:
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(total, _cgroup("memory.max") or total)


def _cgroup(name: str) -> float | None:
    try:
        text = (Path("/sys/fs/cgroup") / name).read_text().strip()
    except OSError:
        return None
    return None if text == "max" else float(text)
