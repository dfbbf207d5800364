"""Sealed batches of rewarded samples: one immutable folder per update, addressed by its content.

`seal_batch` writes the folder (CONTRACTS.md 3), `read_batch` gives back exactly what was sealed or refuses.
Not here: which turns belong in a batch and what they earned (rl_online.services), and what is learnt from them.
Torch-free: the web and the workers import this.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from rl_online.rewards.durable import new_folder, sync_file

FORMAT = 1
TENSORS = "tensors.safetensors"
ROWS = "samples.jsonl"
MANIFEST = "MANIFEST.json"
TOMBSTONE = "tombstone"  # the key of a row whose person was deleted; its value is the digest of what stood there
UNKNOWN_VERSION = -1
NO_PAIR = -1
ROW_PER_TOKEN = ("advantages", "token_weights", "teacher_logprobs")  # lists in a row that run along its tokens

PER_TOKEN = {"token_ids": "<i4", "mask": "|u1", "behaviour_logprobs": "<f4", "version": "<i4"}
PER_SAMPLE = {
    "prompt_lengths": "<i4",
    "has_logprobs": "|u1",
    "reward": "<f4",
    "baseline": "<f4",
    "weight": "<f4",
    "pair": "<i4",
}
# The bytes of a sample that its digest covers; `offsets` is framing and follows from the lengths.
DIGESTED = sorted(PER_TOKEN | PER_SAMPLE)


class CorruptBatch(ValueError):
    """The folder does not hold what its digest says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One token sequence with what it earned.

    Example: prompt [5, 6], completion [7, 8], accepted
        token_ids = [5, 6, 7, 8]               mask = [0, 0, 1, 1]
        behaviour_logprobs = [0, 0, -.1, -.7]  versions = [-1, -1, 3, 3]
    """

    token_ids: list[int]
    prompt_length: int  # tokens of token_ids that the policy was given
    mask: list[int]  # 1 where the policy chose the token; prompts and tool output are 0
    behaviour_logprobs: list[float] | None  # log-probability at sampling, 0 where mask is 0; None when not recorded
    reward: float
    baseline: float  # what was expected of such a turn; the advantage is reward - baseline
    weight: float = 1.0  # multiplies the sample's loss
    versions: list[int]  # weight version that sampled each token, -1 unknown
    pair: int = NO_PAIR  # index in the batch of the preferred twin, -1 none
    row: dict[str, Any] = field(default_factory=dict)
    # JSON beside the tensors: turn, session, user_hash, kind (rl, ce, pref, kto), slice, reward_breakdown,
    # label_reason, source, sampling {temperature, top_p, top_k}, conduct (what it does), is_heldout (measured only),
    # group (answers to one prompt share it); one per token where given: advantages (instead of reward - baseline),
    # token_weights, teacher_logprobs; of a teacher also hinted_prompt and teacher_top, see rl_online.training.teaching

    @property
    def kind(self) -> str:
        return str(self.row.get("kind", "rl"))

    @property
    def is_heldout(self) -> bool:
        return bool(self.row.get("is_heldout", False))

    @property
    def is_tombstone(self) -> bool:
        return TOMBSTONE in self.row


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedBatch:
    """A batch on disk."""

    digest: str  # Merkle root over the samples' digests, 64 hex digits; also the folder's name
    folder: Path
    num_samples: int
    num_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """A batch read back; tombstones keep their place so that `pair` still points right."""

    digest: str
    samples: list[Sample]


def seal_batch(samples: Sequence[Sample], root: Path) -> SealedBatch:
    """Write `root/<digest>/` durably and return it. Sealing the same samples again finds the same folder.

    Raises ValueError, naming the sample, when lengths disagree or a number is not finite, and for an empty batch.
    """
    if not samples:
        raise ValueError("a batch needs at least one sample")
    for index, sample in enumerate(samples):
        _check(sample, index, len(samples))
    tensors = _to_tensors(samples)
    rows = [sample.row for sample in samples]
    digests = [_digest(row, _slices(tensors, index)) for index, row in enumerate(rows)]
    digest = merkle_root(digests)
    folder = root / digest
    num_tokens = len(tensors["token_ids"])
    if not folder.is_dir():
        _write(folder, tensors, rows, digests)
    return SealedBatch(digest=digest, folder=folder, num_samples=len(samples), num_tokens=num_tokens)


def read_batch(folder: Path) -> Batch:
    """The batch in `folder`. Raises CorruptBatch when any byte that carries meaning differs from what was sealed."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        tensors = load_tensors((folder / TENSORS).read_bytes())
        rows = [json.loads(line) for line in (folder / ROWS).read_bytes().removesuffix(b"\n").split(b"\n")]
        digests = list(manifest["samples"])
        _check_shapes(tensors, len(rows))
    except Exception as error:  # whatever a damaged file makes its parser raise is the same fact for the caller
        raise CorruptBatch(f"batch {folder.name} cannot be read: {error}") from error
    found = [
        row[TOMBSTONE] if TOMBSTONE in row else _digest(row, _slices(tensors, index)) for index, row in enumerate(rows)
    ]
    if found != digests or merkle_root(found) != manifest["digest"] or manifest["digest"] != folder.name:
        raise CorruptBatch(f"batch {folder.name} does not match its digests")
    return Batch(digest=manifest["digest"], samples=[_to_sample(tensors, index, row) for index, row in enumerate(rows)])


def read_sample(folder: Path, turn: str) -> Sample | None:
    """The sample of one turn, checked by its own digest; None when the batch holds none, or a tombstone in its place.

    Raises CorruptBatch as `read_batch` does, FileNotFoundError without the folder.
    """
    name = json.dumps(turn, ensure_ascii=False).encode()
    lines = (folder / ROWS).read_bytes().removesuffix(b"\n").split(b"\n")
    try:
        found = ((index, json.loads(line)) for index, line in enumerate(lines) if name in line)
        index, row = next(((index, row) for index, row in found if row.get("turn") == turn), (0, None))
        if row is None:
            return None
        tensors = load_tensors((folder / TENSORS).read_bytes())
        _check_shapes(tensors, len(lines))
        digest = json.loads((folder / MANIFEST).read_bytes())["samples"][index]
    except (ValueError, LookupError, TypeError, SafetensorError) as error:
        raise CorruptBatch(f"batch {folder.name} cannot be read: {error}") from error
    if _digest(row, _slices(tensors, index)) != digest:
        raise CorruptBatch(f"sample {index} of batch {folder.name} does not match its digest")
    return _to_sample(tensors, index, row)


def merkle_root(digests: Sequence[str]) -> str:
    """Root over sample digests in order: leaf sha256(00|digest), node sha256(01|left|right), an odd one moves up."""
    level = [hashlib.sha256(b"\x00" + bytes.fromhex(digest)).digest() for digest in digests]
    while len(level) > 1:
        pairs = [
            hashlib.sha256(b"\x01" + left + right).digest()
            for left, right in zip(level[::2], level[1::2], strict=False)
        ]
        level = pairs + level[len(pairs) * 2 :]
    return level[0].hex()


def _check(sample: Sample, index: int, num_samples: int) -> None:
    num_tokens = len(sample.token_ids)
    per_token: dict[str, Sequence[float]] = {"mask": sample.mask, "versions": sample.versions}
    if sample.behaviour_logprobs is not None:
        per_token["behaviour_logprobs"] = sample.behaviour_logprobs
    in_row = {name: sample.row[name] for name in ROW_PER_TOKEN if name in sample.row}
    per_token |= in_row
    for name, values in per_token.items():
        if len(values) != num_tokens:
            raise ValueError(f"sample {index} has {len(values)} {name} for {num_tokens} tokens; send one per token")
    numbers = [sample.reward, sample.baseline, sample.weight, *(sample.behaviour_logprobs or [])]
    numbers += [number for values in in_row.values() for number in values]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"sample {index} holds a number that is not finite")
    if not 0 <= sample.prompt_length <= num_tokens or any(sample.mask[: sample.prompt_length]):
        raise ValueError(f"sample {index}: the mask must be 0 on its {sample.prompt_length} prompt tokens")
    if not NO_PAIR <= sample.pair < num_samples or sample.pair == index:
        raise ValueError(f"sample {index} is paired with {sample.pair}; give the index of another sample, or -1")


def _to_tensors(samples: Sequence[Sample]) -> dict[str, np.ndarray]:
    def flat(name: str, values: list[list[Any]]) -> np.ndarray:
        return np.concatenate([np.asarray(one, dtype=PER_TOKEN[name]) for one in values])

    unknown = [[0.0] * len(sample.token_ids) for sample in samples]
    columns = {
        "prompt_lengths": [sample.prompt_length for sample in samples],
        "has_logprobs": [sample.behaviour_logprobs is not None for sample in samples],
        "reward": [sample.reward for sample in samples],
        "baseline": [sample.baseline for sample in samples],
        "weight": [sample.weight for sample in samples],
        "pair": [sample.pair for sample in samples],
    }
    return {
        "token_ids": flat("token_ids", [sample.token_ids for sample in samples]),
        "mask": flat("mask", [sample.mask for sample in samples]),
        "version": flat("version", [sample.versions for sample in samples]),
        "behaviour_logprobs": flat(
            "behaviour_logprobs",
            [sample.behaviour_logprobs or zeros for sample, zeros in zip(samples, unknown, strict=True)],
        ),
        "offsets": np.cumsum([0, *(len(sample.token_ids) for sample in samples)], dtype="<i8"),
        **{name: np.asarray(values, dtype=PER_SAMPLE[name]) for name, values in columns.items()},
    }


def _check_shapes(tensors: dict[str, np.ndarray], num_samples: int) -> None:
    offsets = tensors["offsets"]
    if len(offsets) != num_samples + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise ValueError("the offsets do not frame the samples")
    for names, length in ((PER_TOKEN, int(offsets[-1])), (PER_SAMPLE, num_samples)):
        for name, dtype in names.items():
            if tensors[name].dtype != np.dtype(dtype) or tensors[name].shape != (length,):
                raise ValueError(f"{name} is {tensors[name].dtype}{list(tensors[name].shape)}")


def _slices(tensors: dict[str, np.ndarray], index: int) -> list[bytes]:
    start, end = tensors["offsets"][index : index + 2]
    return [
        (tensors[name][start:end] if name in PER_TOKEN else tensors[name][index : index + 1]).tobytes()
        for name in DIGESTED
    ]


def _digest(row: dict[str, Any], slices: list[bytes]) -> str:
    return hashlib.sha256(b"".join([_canonical(row), b"\x00", *slices])).hexdigest()


def _canonical(row: dict[str, Any]) -> bytes:
    return json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")


def _to_sample(tensors: dict[str, np.ndarray], index: int, row: dict[str, Any]) -> Sample:
    start, end = tensors["offsets"][index : index + 2]
    has_logprobs = bool(tensors["has_logprobs"][index])
    return Sample(
        token_ids=tensors["token_ids"][start:end].tolist(),
        prompt_length=int(tensors["prompt_lengths"][index]),
        mask=tensors["mask"][start:end].tolist(),
        behaviour_logprobs=tensors["behaviour_logprobs"][start:end].tolist() if has_logprobs else None,
        reward=float(tensors["reward"][index]),
        baseline=float(tensors["baseline"][index]),
        weight=float(tensors["weight"][index]),
        versions=tensors["version"][start:end].tolist(),
        pair=int(tensors["pair"][index]),
        row=row,
    )


def _write(folder: Path, tensors: dict[str, np.ndarray], rows: list[dict[str, Any]], digests: list[str]) -> None:
    manifest = {
        "format": FORMAT,
        "digest": folder.name,
        "num_samples": len(rows),
        "num_tokens": len(tensors["token_ids"]),
        "samples": digests,
    }
    with new_folder(folder) as draft:
        (draft / TENSORS).write_bytes(save_tensors(tensors))
        (draft / ROWS).write_bytes(b"".join(_canonical(row) + b"\n" for row in rows))
        sync_file(draft / TENSORS)
        sync_file(draft / ROWS)
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
