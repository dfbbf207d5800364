"""Small checkpoint folders for tests: random bf16 tensors, a config and a tokenizer file."""

import numpy as np

from rl_online.weights.manifest import write_manifest
from rl_online.weights.tensors import Tensor, build_header, write_tensor_file


def tensor(values, dtype="BF16", shape=None):
    data = np.ascontiguousarray(values)
    return Tensor(dtype=dtype, shape=data.shape if shape is None else shape, data=data.reshape(-1).view(np.uint8))


def random_tensors(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "model.embed_tokens.weight": tensor(rng.integers(0, 1 << 16, (40, 8), dtype=np.uint16)),
        "model.norm.weight": tensor(rng.normal(size=8).astype(np.float32), "F32"),
    }


def nudged(tensors, seed=1):
    """The same tensors with a few items one unit away."""
    rng = np.random.default_rng(seed)
    moved = {}
    for name, old in tensors.items():
        items = old.data.copy().view(np.uint16 if old.dtype == "BF16" else np.uint32)
        items[rng.integers(0, len(items), 5)] += 1
        moved[name] = Tensor(dtype=old.dtype, shape=old.shape, data=items.view(np.uint8))
    return moved


def write_folder(folder, tensors, *, version=1, config='{"a": 1}', **facts):
    folder.mkdir(parents=True)
    write_tensor_file(folder / "model.safetensors", build_header(tensors), tensors)
    (folder / "config.json").write_text(config)
    write_manifest(folder, policy="p", version=version, **facts)
    return folder
