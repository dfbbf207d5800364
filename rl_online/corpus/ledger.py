"""What a build remembers between two shards: where it is, which documents it has seen, and what it counted.

On disk, so that memory does not grow with the number of documents, and in one transaction for each shard, so that a
build that was killed goes on behind its last whole one.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rl_online.corpus.documents import Place
from rl_online.corpus.near import SIMILAR, Signature, bands_of, similarity
from rl_online.corpus.shards import Shard

CACHE_KIB = 32 * 1024  # of pages in memory
TABLES = """
create table if not exists facts (name text primary key, value text not null) without rowid;
create table if not exists shards (number integer primary key, facts text not null);
create table if not exists seen (digest blob primary key) without rowid;
create table if not exists signatures (document integer primary key, signature blob not null);
create table if not exists bands (key integer, document integer, primary key (key, document)) without rowid;
"""


class Ledger:
    """Not safe for two builds at once; the builder holds a lock."""

    def __init__(self, file: Path, identity: Mapping[str, Any]) -> None:
        """Raises ValueError where the file is of a build with another identity."""
        self._db = sqlite3.connect(file, isolation_level=None)
        self._db.execute(f"pragma cache_size = -{CACHE_KIB}")
        self._db.execute("pragma synchronous = full")
        self._db.executescript(TABLES)
        wanted = json.dumps(identity, sort_keys=True)
        if self._fact("identity", wanted) != wanted:
            self.close()
            raise ValueError("this ledger is of another build")
        self._db.execute("insert or ignore into facts values ('identity', ?)", [wanted])
        self.counts: Counter[tuple[str, str]] = Counter()  # (language or "", what) -> how many
        for language, what, number in json.loads(self._fact("counts", "[]")):
            self.counts[language, what] = number
        path, line = json.loads(self._fact("place", '["", -1]'))
        self.place: Place | None = (bytes.fromhex(path), line) if line >= 0 else None
        self._db.execute("begin")

    @property
    def shards(self) -> list[Shard]:
        """Those that are whole, in their order."""
        return [Shard(**json.loads(facts)) for (facts,) in self._db.execute("select facts from shards order by number")]

    def is_new(self, digest: bytes) -> bool:
        """Whether no document with this digest was seen before; it is now."""
        return self._db.execute("insert or ignore into seen values (?)", [digest]).rowcount == 1

    def is_unlike_all(self, signature: Signature) -> bool:
        """Whether no document so far is nearly the same; then it is remembered."""
        keys = bands_of(signature)
        marks = ",".join("?" * len(keys))
        found = self._db.execute(
            f"select distinct s.signature from bands b join signatures s using (document) where b.key in ({marks})",  # noqa: S608 - marks
            keys,
        )
        if any(similarity(signature, np.frombuffer(packed, np.uint32)) >= SIMILAR for (packed,) in found):
            return False
        number = self._db.execute("insert into signatures (signature) values (?)", [signature.tobytes()]).lastrowid
        self._db.executemany("insert or ignore into bands values (?, ?)", [(key, number) for key in keys])
        return True

    def commit(self, place: Place, shard: Shard | None) -> None:
        """All up to `place` is in whole shards, of which `shard` is the newest; None: nothing was left for one."""
        if shard is not None:
            self._db.execute(
                "insert into shards (number, facts) values ((select count(*) from shards), ?)",
                [json.dumps(asdict(shard))],
            )
        rows = [[language, what, number] for (language, what), number in sorted(self.counts.items())]
        for name, value in (("counts", rows), ("place", [place[0].hex(), place[1]])):
            self._db.execute("insert or replace into facts values (?, ?)", [name, json.dumps(value)])
        self._db.execute("commit")
        self._db.execute("begin")

    def finish(self, digest: str) -> None:
        self._db.execute("insert or replace into facts values ('finished', ?)", [digest])
        self._db.execute("commit")
        self._db.execute("begin")

    @property
    def finished(self) -> str:
        """The digest of the finished corpus; empty while it is made."""
        return self._fact("finished", "")

    def close(self) -> None:
        self._db.close()

    def _fact(self, name: str, default: str) -> str:
        row = self._db.execute("select value from facts where name = ?", [name]).fetchone()
        return str(row[0]) if row else default
