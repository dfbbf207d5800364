"""The exact difference between two sets of weights, small because almost no weight changes in one update.

Codec `gapulp`: per tensor, the distances between changed items as bytes (255 = skip 255 and go on) and the change of
each as an integer step on its raw bits, modulo the item's width; both compressed with zstd. Integer steps are exact for
every dtype, NaN payloads and -0 included, and mostly +1 or -1: a small update moves a bfloat16 by one unit in the last
place.
Pure: bytes in, bytes out. Files are publish's.

Layout: magic, length of the header, zstd(JSON header), zstd streams in the header's order, sha256 of all before.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard

from rl_online.weights.errors import CorruptDelta, WrongBase
from rl_online.weights.manifest import TensorRow, tensor_rows, tree_digest
from rl_online.weights.tensors import Tensor, item_bytes, num_bytes

CODEC = "gapulp"
MAGIC = b"STROPDL1"
LENGTH_BYTES = 8
TRAILER_BYTES = 32
SKIP = 255
ZSTD_LEVEL = 1
MAX_STREAM_BYTES = 1 << 40  # a damaged length must not make us allocate the machine; real streams are far below
UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """How one tensor changed."""

    gaps: np.ndarray  # uint8; see encode_positions
    planes: list[np.ndarray]  # byte k of each zigzag step; planes that are all zero at the top are left out


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """A parsed delta: the header, and the bytes of its streams."""

    header: dict[str, Any]
    gaps: np.ndarray
    planes: np.ndarray
    raw: np.ndarray
    extra: bytes  # whatever the publisher added; its meaning is publish's


def encode_delta(
    parent: Mapping[str, Tensor],
    child: Mapping[str, Tensor],
    *,
    parent_rows: Mapping[str, TensorRow] | None = None,
    child_rows: Mapping[str, TensorRow] | None = None,
    extra: bytes = b"",
) -> bytes:
    """The delta that turns `parent` into `child`.

    Tensors that are new, or changed dtype or shape, travel whole; those missing from `child` are dropped. Give the rows
    of verified manifests to save hashing. `extra` rides along under the same checks.
    """
    parent_rows = parent_rows or tensor_rows(parent)
    child_rows = child_rows or tensor_rows(child)
    entries: list[dict[str, Any]] = []
    gaps: list[np.ndarray] = []
    planes: list[np.ndarray] = []
    raw: list[np.ndarray] = []
    for name, tensor in child.items():
        row = child_rows[name]
        entry: dict[str, Any] = {"name": name, "dtype": row.dtype, "shape": list(row.shape), "xxh3_128": row.xxh3_128}
        entries.append(entry)
        if parent_rows.get(name) == row:
            continue
        if name in parent and (parent[name].dtype, parent[name].shape) == (tensor.dtype, tensor.shape):
            steps = encode_steps(parent[name].data, tensor.data, item_bytes(tensor.dtype))
            entry |= {"gaps": len(steps.gaps), "planes": len(steps.planes)}
            gaps.append(steps.gaps)
            planes.extend(steps.planes)
        else:
            entry["raw"] = True
            raw.append(tensor.data)
    streams = [_join(gaps), _join(planes), _join(raw), memoryview(extra)]
    header = {
        "codec": CODEC,
        "base_tree_digest": tree_digest(parent_rows),
        "tree_digest": tree_digest(child_rows),
        "tensors": entries,
    }
    return _pack(header, streams)


def apply_delta(parent: Mapping[str, Tensor], delta: bytes, *, tree: str | None = None) -> dict[str, Tensor]:
    """The child's tensors, in fresh memory; `parent` is only read.

    Nothing is returned unless the delta is whole, `parent` is the exact base it was made for, and every tensor and the
    tree come out with the digest named in the delta, and in `tree` when given (the digest the receiver was promised).
    Raises CorruptDelta or WrongBase.
    """
    parts = parse_delta(delta)
    if tree is not None and parts.header["tree_digest"] != tree:
        raise CorruptDelta(f"the delta leads to {parts.header['tree_digest'][:12]}, not to {tree[:12]}")
    base = tree_digest(tensor_rows(parent))
    if base != parts.header["base_tree_digest"]:
        raise WrongBase(f"the delta is for {parts.header['base_tree_digest'][:12]}, the weights here are {base[:12]}")
    try:
        child = _decode(parent, parts)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptDelta(f"the delta cannot be decoded: {error}") from error
    if tree_digest(tensor_rows(child)) != parts.header["tree_digest"]:
        raise CorruptDelta("the decoded weights do not have the delta's digest")
    return child


def parse_delta(delta: bytes) -> Parts:
    """Check the delta's own digest and take it apart. Raises CorruptDelta."""
    body, trailer = delta[:-TRAILER_BYTES], delta[-TRAILER_BYTES:]
    if body[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != trailer:
        raise CorruptDelta("the delta is damaged or not a delta")
    try:
        start = len(MAGIC) + LENGTH_BYTES
        end = start + int.from_bytes(body[len(MAGIC) : start], "little")
        header = json.loads(_decompress(body[start:end]))
        streams = []
        for compressed in header["streams"]:
            streams.append(_decompress(body[end : end + compressed]))
            end += compressed
        gaps, planes, raw = (np.frombuffer(stream, np.uint8) for stream in streams[:3])
        return Parts(header=header, gaps=gaps, planes=planes, raw=raw, extra=streams[3])
    except (ValueError, KeyError, TypeError, zstandard.ZstdError) as error:
        raise CorruptDelta(f"the delta cannot be read: {error}") from error


def encode_steps(parent: np.ndarray, child: np.ndarray, width: int) -> Steps:
    """Positions and zigzag steps of the items of `width` bytes that differ."""
    old, new = parent.view(UNSIGNED[width]), child.view(UNSIGNED[width])
    positions = changed_positions(old, new)
    step = new[positions] - old[positions]  # unsigned: wraps, so it is exact both ways
    sign = step >> UNSIGNED[width](8 * width - 1)
    zigzag = (step << 1) ^ (np.zeros_like(sign) - sign)
    bytes_of_step = zigzag.view(np.uint8).reshape(len(zigzag), width)
    top = width
    while top and not bytes_of_step[:, top - 1].any():
        top -= 1
    return Steps(
        gaps=encode_positions(positions), planes=[np.ascontiguousarray(bytes_of_step[:, k]) for k in range(top)]
    )


def apply_steps(parent: np.ndarray, gaps: np.ndarray, planes: Sequence[np.ndarray], width: int) -> np.ndarray:
    """A copy of `parent` with its steps taken. Raises ValueError when positions fall outside."""
    child = parent.copy()
    items = child.view(UNSIGNED[width])
    positions = decode_positions(gaps)
    if len(positions) and positions[-1] >= len(items):
        raise ValueError("a position lies outside its tensor")
    if len(planes) == 1:
        zigzag = planes[0].astype(UNSIGNED[width])
    else:
        bytes_of_step = np.zeros((len(positions), width), np.uint8)
        for k, plane in enumerate(planes):
            bytes_of_step[:, k] = plane
        zigzag = bytes_of_step.view(UNSIGNED[width]).ravel()
    low = zigzag & 1
    items[positions] += (zigzag >> 1) ^ (np.zeros_like(low) - low)
    return child


def changed_positions(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Ascending indices where two equally long unsigned arrays differ.

    Compares eight bytes at a time and looks inside only those words that differ.
    """
    lanes = 8 // old.itemsize
    whole = len(old) // lanes * lanes
    words = np.flatnonzero(old[:whole].view(np.uint64) != new[:whole].view(np.uint64))
    candidates = (words[:, None] * lanes + np.arange(lanes)).ravel()
    inside = candidates[old[candidates] != new[candidates]]
    tail = whole + np.flatnonzero(old[whole:] != new[whole:])
    return np.concatenate([inside, tail])


def encode_positions(positions: np.ndarray) -> np.ndarray:
    """Ascending positions as bytes: the count of unchanged items since the last, 255 meaning 255 and more to come.

    Example: positions [0, 2, 300] have gaps [0, 1, 297] and become [0, 1, 255, 42].
    """
    gaps = np.diff(positions, prepend=-1) - 1
    skips = gaps // SKIP
    code = np.full(len(gaps) + int(skips.sum()), SKIP, np.uint8)
    code[np.cumsum(skips + 1) - 1] = gaps % SKIP
    return code


def decode_positions(code: np.ndarray) -> np.ndarray:
    """Inverse of encode_positions."""
    is_position = code != SKIP
    return np.cumsum(code + is_position.astype(np.int64))[is_position] - 1


def _decode(parent: Mapping[str, Tensor], parts: Parts) -> dict[str, Tensor]:
    gap_at = plane_at = raw_at = 0
    child: dict[str, Tensor] = {}
    for entry in parts.header["tensors"]:
        name, dtype, shape = entry["name"], entry["dtype"], tuple(entry["shape"])
        if entry.get("raw"):
            size = num_bytes(dtype, shape)
            data = parts.raw[raw_at : raw_at + size].copy()
            raw_at += size
        elif "gaps" in entry:
            gaps = parts.gaps[gap_at : gap_at + entry["gaps"]]
            gap_at += len(gaps)
            count = int((gaps != SKIP).sum())
            planes = [parts.planes[plane_at + k * count : plane_at + (k + 1) * count] for k in range(entry["planes"])]
            plane_at += count * len(planes)
            data = apply_steps(parent[name].data, gaps, planes, item_bytes(dtype))
        else:
            data = parent[name].data.copy()
        child[name] = Tensor(dtype=dtype, shape=shape, data=data)
    return child


def _pack(header: dict[str, Any], streams: Sequence[memoryview]) -> bytes:
    compressed = [_compress(stream) for stream in streams]
    head = _compress(memoryview(json.dumps(header | {"streams": [len(stream) for stream in compressed]}).encode()))
    body = b"".join([MAGIC, len(head).to_bytes(LENGTH_BYTES, "little"), head, *compressed])
    return body + hashlib.sha256(body).digest()


def _join(parts: Sequence[np.ndarray]) -> memoryview:
    return np.concatenate([np.empty(0, np.uint8), *parts]).data


def _compress(data: memoryview) -> bytes:
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)


def _decompress(data: bytes) -> bytes:
    if zstandard.frame_content_size(data) > MAX_STREAM_BYTES:
        raise CorruptDelta("a stream claims an absurd length")
    return zstandard.ZstdDecompressor().decompress(data)
