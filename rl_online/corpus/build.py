"""From a folder of files to a corpus: read, screened, without twins and benchmark problems, tokenised, packed, written.

Killed at any point or told to stop, the same call goes on behind the last whole shard and ends with the same digest.
What memory holds is one shard and bounded caches, however many files there are.
"""

import fcntl
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evals.overlap import hashed
from rl_online.corpus.documents import Found, Place, read_documents
from rl_online.corpus.errors import UnusableSource
from rl_online.corpus.leaks import Problems
from rl_online.corpus.ledger import Ledger
from rl_online.corpus.near import signature_of
from rl_online.corpus.packing import pack
from rl_online.corpus.recipe import Recipe
from rl_online.corpus.shards import Corpus, Part, Row, open_corpus, shard_name, write_manifest, write_shard
from rl_online.corpus.tokens import Cutter
from rl_online.rewards.durable import clear_drafts, new_folder, sync_file

HELDOUT_ONE_IN = 20
SHARD_READ = 4096  # documents after which a shard ends whatever was kept of them, so that a build never runs long on
COUNTED = ("documents", "bytes", "tokens", "heldout_documents", "fim_pieces")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRequest:
    """Everything a corpus depends on."""

    source: Path  # a folder, or one file of records
    root: Path  # the corpus becomes root/<digest>
    work: Path  # a folder of this build alone: its ledger and unfinished shards
    checkpoint: Path  # whose tokenizer is used
    recipe: Recipe
    problems: Problems  # documents that hold one are left out


@dataclass(kw_only=True, slots=True)
class _Waiting:
    """Pieces on their way into the next shard."""

    trained: list[Part] = field(default_factory=list)
    heldout: list[Part] = field(default_factory=list)
    num_tokens: int = 0
    num_read: int = 0  # documents, also those that are in no piece


def build_corpus(
    request: BuildRequest,
    *,
    crash: Callable[[str], None] = lambda name: None,
    should_stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Counter[tuple[str, str]]], None] = lambda counts: None,
) -> Corpus | None:
    """The finished corpus, made now or found made; None where `should_stop`, asked after each shard, said so.

    `watch` is given the counts so far after each document: (language or "", what) -> how many.

    Raises UnusableSource and UnusableRecipe.
    """
    cutter = Cutter(request.checkpoint, request.recipe)
    with _alone(request.work), _ledger(request, cutter) as ledger:
        if ledger.finished:
            return _in_place(request, ledger.finished)
        for is_last in _shards(request, cutter, ledger, crash, watch):
            crash("corpus.between_shards")
            if not is_last and should_stop():
                return None
        facts = {**_identity(request, cutter), **_counts(ledger)}
        if not any(shard.num_rows for shard in ledger.shards):
            raise UnusableSource(f"nothing in {request.source.name} can be trained on: {facts['dropped']}")
        digest = write_manifest(_draft(request), facts, ledger.shards)
        sync_file(_draft(request))
        ledger.finish(digest)
        crash("corpus.before_rename")
        return _in_place(request, digest)


def forget_build(work: Path) -> None:
    """Once what came of it is recorded, or it is given up."""
    shutil.rmtree(work, ignore_errors=True)


def _shards(
    request: BuildRequest,
    cutter: Cutter,
    ledger: Ledger,
    crash: Callable[[str], None],
    watch: Callable[[Counter[tuple[str, str]]], None],
) -> Iterator[bool]:
    """Writes one after the other; whether it was the last."""
    waiting, place = _Waiting(), ledger.place
    for found in read_documents(request.source, after=ledger.place):
        place = found.place
        waiting.num_read += 1
        reason = found.reason or _take(found, request, cutter, ledger, waiting)
        if reason:
            ledger.counts[found.language, f"dropped {reason}"] += 1
        watch(ledger.counts)
        if waiting.num_tokens >= request.recipe.shard_tokens or waiting.num_read >= SHARD_READ:
            _flush(request, ledger, waiting, place, crash)
            waiting = _Waiting()
            yield False
    if place is not None:
        _flush(request, ledger, waiting, place, crash)
    yield True


def _take(found: Found, request: BuildRequest, cutter: Cutter, ledger: Ledger, waiting: _Waiting) -> str:
    """Add a document's pieces to `waiting`; why not, where not."""
    recipe, language = request.recipe, found.language
    if recipe.languages and language not in recipe.languages:
        return "not_asked_for"
    data = found.text.encode()
    digest = hashlib.sha256(data)
    if not ledger.is_new(digest.digest()):
        return "copy"
    text = hashed(found.text, max_words=len(data))
    if request.problems.leak_into(text):
        return "in_benchmark"
    if not ledger.is_unlike_all(signature_of(text)):
        return "near_copy"
    name = digest.hexdigest()
    pieces = cutter.pieces(found.text, name)
    parts = [
        Part(
            token_ids=np.array(piece.token_ids, np.int32),
            language=language,
            path=found.path,
            document=name,
            part=number,
            fim=piece.fim,
        )
        for number, piece in enumerate(pieces)
        if len(piece.token_ids) > 1
    ]
    if not parts:
        return "empty"
    counts = ledger.counts
    if _is_heldout(digest.digest(), counts[language, "heldout_documents"], recipe):
        counts[language, "heldout_documents"] += 1
        waiting.heldout.append(parts[0])  # its first piece says enough of a language; the rest is in neither
        return ""
    num_tokens = sum(len(part.token_ids) for part in parts)
    counts[language, "documents"] += 1
    counts[language, "bytes"] += len(data)
    counts[language, "tokens"] += num_tokens
    counts[language, "fim_pieces"] += sum(bool(part.fim) for part in parts)
    waiting.trained += parts
    waiting.num_tokens += num_tokens
    return ""


def _is_heldout(digest: bytes, num_before: int, recipe: Recipe) -> bool:
    return num_before < recipe.heldout and int.from_bytes(digest[:8]) % HELDOUT_ONE_IN == 0


def _flush(
    request: BuildRequest, ledger: Ledger, waiting: _Waiting, place: Place, crash: Callable[[str], None]
) -> None:
    """Write what waits as the next shard, then remember that all up to `place` is done."""
    rows = [
        Row(parts=tuple(parts[index] for index in indices), is_heldout=is_heldout)
        for parts, is_heldout in ((waiting.trained, False), (waiting.heldout, True))
        for indices in pack([len(part.token_ids) for part in parts], request.recipe.row_tokens)
    ]
    shard = None
    if rows:
        folder = _draft(request) / shard_name(len(ledger.shards))
        shutil.rmtree(folder, ignore_errors=True)  # written, but not remembered, before a kill
        clear_drafts(folder)
        with new_folder(folder) as draft:
            shard = write_shard(draft, folder.name, rows)
            crash("corpus.mid_shard")
        crash("corpus.before_commit")
    ledger.commit(place, shard)


def _in_place(request: BuildRequest, digest: str) -> Corpus:
    target = request.root / digest
    if not target.is_dir():
        request.root.mkdir(parents=True, exist_ok=True)
        os.rename(_draft(request), target)
        sync_file(request.root)
    return open_corpus(target)


def _draft(request: BuildRequest) -> Path:
    return request.work / "corpus"


def _identity(request: BuildRequest, cutter: Cutter) -> dict[str, Any]:
    return {
        "recipe": request.recipe.to_json(),
        "tokenizer": cutter.digest,
        "benchmarks": {"problems": len(request.problems), "digest": request.problems.digest},
    }


def _counts(ledger: Ledger) -> dict[str, Any]:
    """languages -> what -> how many, and dropped -> reason -> how many; of documents without a language only these."""
    languages: dict[str, dict[str, Any]] = {}
    dropped: dict[str, int] = {}
    for (language, what), number in sorted(ledger.counts.items()):
        reason = what.removeprefix("dropped ")
        if language:
            row = languages.setdefault(language, {**dict.fromkeys(COUNTED, 0), "dropped": {}})
            (row if reason == what else row["dropped"])[reason] = number
        if reason != what:
            dropped[reason] = dropped.get(reason, 0) + number
    return {"languages": languages, "dropped": dropped}


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process that held it."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _ledger(request: BuildRequest, cutter: Cutter) -> Iterator[Ledger]:
    """Of this build; what another one left in the folder is no use to it."""
    identity = {**_identity(request, cutter), "source": os.fspath(request.source)}
    _draft(request).mkdir(exist_ok=True)
    try:
        ledger = Ledger(request.work / "ledger.sqlite", identity)
    except ValueError:
        for path in [_draft(request), *request.work.glob("ledger.sqlite*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _draft(request).mkdir()
        ledger = Ledger(request.work / "ledger.sqlite", identity)
    try:
        yield ledger
    finally:
        ledger.close()
