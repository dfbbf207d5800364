"""Where the output of supervised programs goes: prefixed to the terminal, and whole to a file that is rotated."""

import os
from pathlib import Path
from typing import BinaryIO, TextIO

MAX_BYTES = 10_000_000
KEEP = 3  # older files: name.log.1 is the youngest
MAX_LINE = 16_384  # bytes; a longer line is cut into several
COLOURS = {"postgres": 34, "valkey": 31, "web": 32, "worker": 33, "beat": 35, "engine": 36, "updater": 95, "strop": 1}


class Log:
    """The lines of one program."""

    def __init__(self, name: str, *, folder: Path, terminal: TextIO | None = None) -> None:
        self.name = name
        self.path = folder / f"{name}.log"
        self._terminal = terminal
        self._rest = b""
        folder.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = self.path.open("ab")

    def feed(self, data: bytes) -> None:
        """Take output as it comes; whole lines are passed on, the rest waits."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > MAX_LINE:
            lines.append(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]
        for line in lines:
            self._write(line)
        self._file.flush()

    def say(self, text: str) -> None:
        self.feed(text.encode() + b"\n")

    def close(self) -> None:
        if self._rest:
            self.feed(b"\n")
        self._file.close()

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        if self._file.tell() > MAX_BYTES:
            self._rotate()
        if self._terminal is not None:
            print(_prefix(self.name, self._terminal), line.decode(errors="replace"), file=self._terminal, flush=True)

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEEP, 0, -1):
            older = self.path if number == 1 else self.path.with_suffix(f".log.{number - 1}")
            if older.exists():
                os.replace(older, self.path.with_suffix(f".log.{number}"))
        self._file = self.path.open("ab")


def _prefix(name: str, terminal: TextIO) -> str:
    text = f"{name:>8} |"
    if terminal.isatty() and "NO_COLOR" not in os.environ:
        return f"\x1b[{COLOURS.get(name, 37)}m{text}\x1b[0m"
    return text
