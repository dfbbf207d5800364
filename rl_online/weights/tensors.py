"""Safetensors files as plain bytes: names, dtypes, shapes and memory-mapped views, without torch.

Reads the header itself, because numpy has no bfloat16 or fp8, and weights are only compared and copied here, never
computed with. Not here: what the tensors mean (policy) and whether a folder is whole (manifest).
"""

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from rl_online.weights.errors import CorruptCheckpoint

WEIGHTS = "*.safetensors"
METADATA = "__metadata__"
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library itself
BITS = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16,
    "I16": 16, "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I8": 8,
    "U8": 8, "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tensor:
    """One named tensor's bytes."""

    dtype: str  # as safetensors spells it, e.g. BF16
    shape: tuple[int, ...]
    data: np.ndarray  # uint8 [number of bytes], little-endian, row-major

    @property
    def digest(self) -> str:
        """xxh3-128 of the bytes."""
        return xxhash.xxh3_128_hexdigest(self.data.data)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TensorFile:
    """One safetensors file: its header exactly as written, and views of its tensors in file order."""

    header: bytes
    tensors: dict[str, Tensor]


def item_bytes(dtype: str) -> int:
    """Width in which the codec steps through a tensor: 1, 2, 4 or 8 bytes; types under a byte step by bytes."""
    return max(BITS[dtype] // 8, 1) if BITS[dtype] != 6 else 1


def num_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    bits = BITS[dtype] * math.prod(shape)
    if bits % 8:
        raise CorruptCheckpoint(f"a {dtype} tensor of shape {list(shape)} does not fill whole bytes")
    return bits // 8


def read_tensor_file(path: Path) -> TensorFile:
    """Map `path` read-only. Raises CorruptCheckpoint when the header and the file's length do not fit together."""
    with path.open("rb") as handle:
        size = path.stat().st_size
        if size < LENGTH_BYTES:
            raise CorruptCheckpoint(f"{path.name} has {size} bytes, too few for a safetensors file")
        mapped = np.frombuffer(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)
    header_end = LENGTH_BYTES + int.from_bytes(mapped[:LENGTH_BYTES].tobytes(), "little")
    if header_end > min(size, MAX_HEADER_BYTES):
        raise CorruptCheckpoint(f"{path.name} is cut short or not a safetensors file")
    header = mapped[LENGTH_BYTES:header_end].tobytes()
    body = mapped[header_end:]
    try:
        layout = parse_header(header, body_bytes=len(body))
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(f"{path.name}: {error}") from error
    tensors = {
        name: Tensor(dtype=spec.dtype, shape=spec.shape, data=body[spec.start : spec.end])
        for name, spec in layout.items()
    }
    return TensorFile(header=header, tensors=tensors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where a tensor lies in the file's body."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def parse_header(header: bytes, *, body_bytes: int | None = None) -> dict[str, Layout]:
    """Name -> place, in file order. Raises CorruptCheckpoint unless the tensors tile the body exactly."""
    try:
        entries: dict[str, Any] = json.loads(header)
        layout = {
            name: Layout(
                dtype=entry["dtype"],
                shape=tuple(map(int, entry["shape"])),
                start=int(entry["data_offsets"][0]),
                end=int(entry["data_offsets"][1]),
            )
            for name, entry in entries.items()
            if name != METADATA
        }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CorruptCheckpoint(f"the header cannot be read: {error}") from error
    layout = dict(sorted(layout.items(), key=lambda item: (item[1].start, item[1].end)))
    position = 0
    for name, spec in layout.items():
        if spec.dtype not in BITS:
            raise CorruptCheckpoint(f"{name} has the unknown dtype {spec.dtype}")
        if spec.start != position or spec.end - spec.start != num_bytes(spec.dtype, spec.shape):
            raise CorruptCheckpoint(f"{name} does not lie where its shape says")
        position = spec.end
    if body_bytes is not None and position != body_bytes:
        raise CorruptCheckpoint(f"the body has {body_bytes} bytes where the header says {position}")
    return layout


def build_header(tensors: Mapping[str, Tensor]) -> bytes:
    """A header for `tensors` in the given order, padded so that the body starts on 8 bytes."""
    entries: dict[str, Any] = {METADATA: {"format": "pt"}}
    position = 0
    for name, tensor in tensors.items():
        end = position + len(tensor.data)
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % LENGTH_BYTES)


def write_tensor_file(path: Path, header: bytes, tensors: Mapping[str, Tensor]) -> None:
    """Write `tensors` under `header`, which must name exactly the tensors to write. Not atomic: write into a draft."""
    with path.open("wb") as handle:
        handle.write(len(header).to_bytes(LENGTH_BYTES, "little"))
        handle.write(header)
        for name, spec in parse_header(header).items():
            data = tensors[name].data
            assert len(data) == spec.end - spec.start, name
            handle.write(data.data)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint folder, by name. Raises CorruptCheckpoint when there are none."""
    files = sorted(folder.glob(WEIGHTS))
    if not files:
        raise CorruptCheckpoint(f"{folder.name} holds no safetensors file")
    return files


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder, mapped, by name."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        for name, tensor in read_tensor_file(path).tensors.items():
            if name in tensors:
                raise CorruptCheckpoint(f"{name} is in two files of {folder.name}")
            tensors[name] = tensor
    return tensors
