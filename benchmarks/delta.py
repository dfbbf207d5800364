"""How small and how fast the delta codec is, against XOR + zstd-1 (slime, SkyRL) and against a plain copy, in one run.

Weights are synthetic bfloat16 with fp32 masters; one update moves each master by about the learning rate, as Adam does.
Give `--parent FOLDER --child FOLDER` to measure two real checkpoints.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard

from rl_online.weights.delta import apply_delta, encode_delta
from rl_online.weights.manifest import tensor_rows
from rl_online.weights.tensors import Tensor, read_tensors

NUM_WEIGHTS = 64_000_000
WEIGHT_SCALE = 0.02
LEARNING_RATE = 1e-6
REPEATS = 5
RESULTS = Path(__file__).parent / "results"


def synthetic(seed: int = 0) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    rng = np.random.default_rng(seed)
    master = rng.standard_normal(NUM_WEIGHTS, dtype=np.float32) * np.float32(WEIGHT_SCALE)
    moved = master + rng.standard_normal(NUM_WEIGHTS, dtype=np.float32) * np.float32(LEARNING_RATE)
    return {"w": as_bfloat16(master)}, {"w": as_bfloat16(moved)}


def as_bfloat16(master: np.ndarray) -> Tensor:
    bits = ((master.view(np.uint32) + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16)
    return Tensor(dtype="BF16", shape=(len(bits),), data=bits.view(np.uint8))


def fastest(work: Callable[[], object]) -> float:
    """Seconds of the best of a few runs: noise only ever adds time."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def xor_zstd(parent: dict[str, Tensor], child: dict[str, Tensor]) -> int:
    compressor = zstandard.ZstdCompressor(level=1)
    return sum(len(compressor.compress((parent[name].data ^ child[name].data).data)) for name in child)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent", type=Path)
    parser.add_argument("--child", type=Path)
    options = parser.parse_args()
    is_real = options.parent and options.child
    parent, child = (read_tensors(options.parent), read_tensors(options.child)) if is_real else synthetic()
    num_bytes = sum(len(tensor.data) for tensor in child.values())
    rows = {"parent_rows": tensor_rows(parent), "child_rows": tensor_rows(child)}
    delta = encode_delta(parent, child, **rows)
    rebuilt = apply_delta(parent, delta)
    assert all(np.array_equal(rebuilt[name].data, tensor.data) for name, tensor in child.items())
    encode_s = fastest(lambda: encode_delta(parent, child, **rows))
    apply_s = fastest(lambda: apply_delta(parent, delta))
    copy_s = fastest(lambda: [tensor.data.copy() for tensor in child.values()])
    results = {
        "delta.ratio_to_full": num_bytes / len(delta),
        "delta.ratio_to_xor_zstd": xor_zstd(parent, child) / len(delta),
        "delta.encode_gb_per_s": num_bytes / encode_s / 1e9,
        "delta.apply_gb_per_s": num_bytes / apply_s / 1e9,
        "delta.copy_gb_per_s": num_bytes / copy_s / 1e9,
        "delta.encode_ratio_to_copy": copy_s / encode_s,
        "delta.apply_ratio_to_copy": copy_s / apply_s,
    }
    for name, value in results.items():
        print(f"RESULT {name}={value:.3f}")
    RESULTS.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    facts = {"weights": "real" if is_real else "synthetic", "num_bytes": num_bytes, "delta_bytes": len(delta)}
    (RESULTS / "delta.json").write_text(json.dumps({**results, **facts, "machine": machine}, indent=1))


if __name__ == "__main__":
    main()
