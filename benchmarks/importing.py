"""How much memory an Inspect log of 200,000 samples needs to be imported, and how that grows with the samples.

The log is written sample by sample into an archive, so that writing it needs no memory either; each sample has two
messages, events, tokens and a score, as small logs of Inspect have. Each import runs in a process of its own, which
tells its largest resident size; what a tenth of the samples needs is measured beside it. PostgreSQL is a peer process.

    python benchmarks/importing.py                   # 200,000 samples
    python benchmarks/importing.py --samples 20000
"""
# ruff: noqa: E402 - the home is chosen before Django reads its settings

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

CHECKOUT = Path(__file__).resolve().parents[1]
# Without this folder, whose modules would stand before the standard library's.
sys.path[:1] = [str(CHECKOUT), str(CHECKOUT / "platform")]
os.environ.setdefault("STROP_HOME", tempfile.mkdtemp(prefix="strop-importing-"))
os.environ["DJANGO_SETTINGS_MODULE"] = "strop.settings"
os.environ.setdefault("STROP_LOG_LEVEL", "WARNING")

import django

django.setup()

from django.conf import settings
from django.core.management import call_command
from django.db import connections

from evals.services.importing import import_path
from registry.services import create_project
from strop.local import service
from strop.local.postgres import Postgres

SAMPLES, LIMIT_MB = 200_000, 500
SMALL = 10  # the smaller log has a tenth
WORDS = "the quick brown fox jumps over the lazy dog and is not seen again before noon " * 4
MODEL = "openai/gpt-5"


def write_log(path: Path, num_samples: int) -> None:
    """As Inspect writes a finished log: journal, samples, header."""
    spec = {
        "task": "arithmetic", "task_version": 1, "run_id": f"run-{num_samples}", "eval_id": f"eval-{num_samples}",
        "model": MODEL, "created": "2026-11-30T05:00:00+00:00", "dataset": {"name": "sums", "samples": num_samples},
        "config": {"epochs": 1}, "packages": {"inspect_ai": "0.3.285"},
    }  # fmt: skip
    scores = [{"name": "match", "scorer": "match", "metrics": {}, "scored_samples": num_samples}]
    header = {"version": 2, "status": "success", "eval": spec, "results": {"scores": scores}, "stats": {}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": spec, "plan": {}}))
        for number in range(num_samples):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample(number)))
        archive.writestr("header.json", json.dumps(header))


def sample(number: int) -> dict[str, Any]:
    usage = {"input_tokens": 120, "output_tokens": 40 + number % 9, "total_tokens": 160 + number % 9}
    asked, answer = f"What is {number} + {number % 97}? {WORDS}", f"{number + number % 97} because {WORDS}"
    return {
        "id": number, "epoch": 1, "input": asked, "target": str(number + number % 97),
        "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}],
        "output": {"model": MODEL, "choices": [{"message": {"role": "assistant", "content": answer}}], "usage": usage},
        "scores": {"match": {"value": "C" if number % 3 else "I", "answer": str(number), "explanation": answer}},
        "model_usage": {MODEL: usage}, "metadata": {"family": f"f{number % 40}"}, "working_time": 1.2,
        "events": [{"event": "model", "timestamp": "2026-11-30T05:00:01+00:00", "content": WORDS} for _ in range(6)],
    }  # fmt: skip


def import_here(project_id: str, log: str) -> None:
    """In a process of its own: what it took, as JSON on stdout."""
    before_mb = peak_of_this_process_mb()
    started = time.perf_counter()
    (imported,) = import_path(UUID(project_id), Path(log)).imported
    seconds = time.perf_counter() - started
    told = {"n": imported.num_new, "s": seconds, "peak_mb": peak_of_this_process_mb(), "before_mb": before_mb}
    print(json.dumps(told))


def peak_of_this_process_mb() -> float:
    """Of its own pages: `ru_maxrss` would also count those of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextmanager
def database() -> Iterator[None]:
    """PostgreSQL in a home that is gone afterwards."""
    postgres = Postgres.of(settings.HOME).service()
    process = service.start(postgres, output=subprocess.DEVNULL)
    try:
        service.wait_ready(process, postgres)
        Postgres.of(settings.HOME).ensure_database()
        call_command("migrate", database="owner", verbosity=0)
        yield
    finally:
        connections.close_all()
        service.stop(process, postgres)
        for folder in {settings.HOME.root, settings.HOME.data.parent, settings.HOME.sockets}:
            shutil.rmtree(folder, ignore_errors=True)


def measure(num_samples: int) -> dict[str, float]:
    project = create_project(f"importing-{num_samples}", "Importing")
    with tempfile.TemporaryDirectory(prefix="strop-log-") as folder:
        log = Path(folder) / "large.eval"
        write_log(log, num_samples)
        size_mb = log.stat().st_size / 1024**2
        command = [sys.executable, __file__, "--import", str(project.id), str(log)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ)
    found = json.loads(told.stdout)
    assert found["n"] == num_samples, found
    return found | {"log_mb": size_mb}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--import", nargs=2, dest="imported", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.imported:
        import_here(*asked.imported)
        return
    with database():
        small, large = measure(max(1, asked.samples // SMALL)), measure(asked.samples)
    results = {
        "importing.inspect_samples": asked.samples,
        "importing.inspect_log_mb": round(large["log_mb"], 1),
        "importing.inspect_peak_mb": round(large["peak_mb"], 1),
        "importing.inspect_peak_of_limit": round(large["peak_mb"] / LIMIT_MB, 3),
        "importing.inspect_process_mb": round(large["before_mb"], 1),
        "importing.inspect_bytes_a_sample": round(
            (large["peak_mb"] - small["peak_mb"]) * 1024**2 / (large["n"] - small["n"])
        ),
        "importing.inspect_samples_per_s": round(large["n"] / large["s"]),
    }
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    (folder / "importing.json").write_text(json.dumps({**results, "machine": machine}, indent=1))


if __name__ == "__main__":
    main()
