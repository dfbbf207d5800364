"""A corpus on disk: shards of packed rows, each named by a digest in the manifest, read one at a time.

    <digest>/MANIFEST.json                      recipe, counts, and of each shard its digest and size
             shard-000000/tokens.safetensors    the tokens of all pieces, and where pieces and rows begin
                          rows.jsonl            of each row, what its pieces are; held-out rows come last

A shard's digest is the Merkle root over its rows; the corpus's is the root over its facts and its shards.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from rl_online.corpus.errors import CorruptCorpus
from rl_online.rewards.batch import merkle_root
from rl_online.rewards.durable import sync_file

FORMAT = 1
MANIFEST, TENSORS, ROWS = "MANIFEST.json", "tokens.safetensors", "rows.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A piece in its row."""

    token_ids: NDArray[np.int32]
    language: str
    path: str  # of its document, from the root of the source
    document: str  # sha256 of the document's text
    part: int  # which piece of it, from 0
    fim: str = ""  # psm, spm or as it was written


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Pieces trained on side by side; none sees another."""

    parts: tuple[Part, ...]
    is_heldout: bool = False

    @property
    def num_tokens(self) -> int:
        return sum(len(part.token_ids) for part in self.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """What the manifest says of one."""

    name: str
    digest: str
    num_rows: int  # to train on
    num_heldout: int  # rows to measure only
    num_tokens: int  # of the rows to train on


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """A corpus and its shards, none of them read yet."""

    folder: Path
    digest: str
    facts: dict[str, Any]  # recipe, tokenizer, benchmarks, languages -> counts, dropped -> reason -> documents
    shards: tuple[Shard, ...]

    @property
    def num_rows(self) -> int:
        return sum(shard.num_rows for shard in self.shards)

    @property
    def num_tokens(self) -> int:
        return sum(shard.num_tokens for shard in self.shards)


def shard_name(number: int) -> str:
    return f"shard-{number:06d}"


def write_shard(folder: Path, name: str, rows: Sequence[Row]) -> Shard:
    """Fill the empty `folder`; durable once the caller has synced it. The held-out rows come last."""
    parts = [part for row in rows for part in row.parts]
    tensors = {
        "token_ids": np.concatenate([part.token_ids for part in parts]).astype("<i4"),
        "part_starts": np.cumsum([0, *(len(part.token_ids) for part in parts)], dtype="<i8"),
        "row_starts": np.cumsum([0, *(len(row.parts) for row in rows)], dtype="<i8"),
    }
    lines = [_line(row) for row in rows]
    (folder / TENSORS).write_bytes(save_tensors(tensors))
    (folder / ROWS).write_bytes(b"".join(line + b"\n" for line in lines))
    trained = [row for row in rows if not row.is_heldout]
    return Shard(
        name=name,
        digest=merkle_root([_digest(line, row.parts) for line, row in zip(lines, rows, strict=True)]),
        num_rows=len(trained),
        num_heldout=len(rows) - len(trained),
        num_tokens=sum(row.num_tokens for row in trained),
    )


def read_shard(corpus: Corpus, number: int) -> list[Row]:
    """All rows of a shard. Raises CorruptCorpus where a byte that carries meaning differs from what was written."""
    shard = corpus.shards[number]
    folder = corpus.folder / shard.name
    try:
        tensors = load_tensors((folder / TENSORS).read_bytes())
        lines = (folder / ROWS).read_bytes().removesuffix(b"\n").split(b"\n")
        rows = _rows(tensors, [json.loads(line) for line in lines])
        digests = [_digest(line, row.parts) for line, row in zip(lines, rows, strict=True)]
    except Exception as error:  # whatever a damaged file makes its parser raise is the same fact for the caller
        raise CorruptCorpus(f"{shard.name} of corpus {corpus.folder.name} cannot be read: {error}") from error
    if merkle_root(digests) != shard.digest:
        raise CorruptCorpus(f"{shard.name} of corpus {corpus.folder.name} does not match its digest")
    return rows


def write_manifest(folder: Path, facts: dict[str, Any], shards: Sequence[Shard]) -> str:
    """The corpus's digest; durable."""
    digest = _root(facts, shards)
    manifest = {"format": FORMAT, "digest": digest, "facts": facts, "shards": [asdict(shard) for shard in shards]}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True), "utf-8")
    sync_file(folder / MANIFEST)
    return digest


def open_corpus(folder: Path) -> Corpus:
    """Raises CorruptCorpus for a folder without a manifest that fits its name."""
    try:
        found = json.loads((folder / MANIFEST).read_bytes())
        shards = tuple(Shard(**row) for row in found["shards"])
        facts, digest = found["facts"], found["digest"]
        is_ours = digest == folder.name == _root(facts, shards)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CorruptCorpus(f"corpus {folder.name} cannot be read: {error}") from error
    if not is_ours:
        raise CorruptCorpus(f"corpus {folder.name} does not match its digest")
    return Corpus(folder=folder, digest=digest, facts=facts, shards=shards)


def _root(facts: dict[str, Any], shards: Sequence[Shard]) -> str:
    leaves = [_canonical(facts), *(_canonical(asdict(shard)) for shard in shards)]
    return merkle_root([hashlib.sha256(leaf).hexdigest() for leaf in leaves])


def _line(row: Row) -> bytes:
    parts = [
        {"language": one.language, "path": one.path, "document": one.document, "part": one.part, "fim": one.fim}
        for one in row.parts
    ]
    return _canonical({"is_heldout": row.is_heldout, "parts": parts})


def _digest(line: bytes, parts: Sequence[Part]) -> str:
    tokens = [part for one in parts for part in (len(one.token_ids).to_bytes(8, "little"), one.token_ids.tobytes())]
    return hashlib.sha256(b"".join([line, b"\0", *tokens])).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _rows(tensors: dict[str, NDArray[Any]], said: Sequence[dict[str, Any]]) -> list[Row]:
    token_ids, starts = tensors["token_ids"].astype(np.int32, copy=False), tensors["part_starts"].tolist()
    firsts = tensors["row_starts"].tolist()
    if starts[0] != 0 or starts[-1] != len(token_ids) or firsts != [0, *np.cumsum([len(one["parts"]) for one in said])]:
        raise ValueError("the starts do not frame the rows")
    return [
        Row(
            parts=tuple(
                Part(token_ids=token_ids[starts[first + place] : starts[first + place + 1]], **part)
                for place, part in enumerate(one["parts"])
            ),
            is_heldout=one["is_heldout"],
        )
        for first, one in zip(firsts, said, strict=False)
    ]
