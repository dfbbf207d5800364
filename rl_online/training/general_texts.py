"""Texts of no product: what a policy should still be able to say after it has learnt from its users. Torch-free.

A project's own set is a file in the home's `texts` folder, never trained on. Without one a small set is put together
when it is needed, from the documentation that comes with Python and the licences of packages this project stands on.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from pydoc_data.topics import topics

log = logging.getLogger(__name__)

BUILTIN = "builtin"
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")
MAX_BYTES = 1 << 20  # of a set: each update reads it under two networks
NUM_TOPICS = 24
NUM_CHARACTERS = 480  # of each built-in document, about a hundred tokens
PACKAGES = ("celery", "django", "httpx", "numpy")  # whose licences are read


class NoTexts(ValueError):
    """There is no such set, or it cannot be read; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What is independent of the rest: differences are counted by document."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    name: str
    documents: tuple[Document, ...]

    @property
    def digest(self) -> str:
        """sha256 of names and texts: two measurements with equal digests read the same."""
        rows = [[one.name, one.text] for one in self.documents]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()


def read_texts(name: str, folder: Path | None) -> Texts:
    """The built-in set, or the file `name` in `folder`: JSON lines of {"text": ...}, with a "name" if it has one; or a
    text file whose documents stand between blank lines. Raises NoTexts.
    """
    if name == BUILTIN:
        return builtin_texts()
    if not NAME.fullmatch(name):
        raise NoTexts(f"found {name[:60]!r}; write the name of a file in the home's texts folder")
    path = folder / name if folder is not None else None
    if path is None or not path.is_file():
        raise NoTexts(f"there is no file {name} in the home's texts folder")
    if path.stat().st_size > MAX_BYTES:
        raise NoTexts(f"{name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        text = path.read_text("utf-8")
        documents = _from_lines(text) if path.suffix == ".jsonl" else _from_text(text)
    except (UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise NoTexts(f"{name} cannot be read: {error}") from error
    if not documents:
        raise NoTexts(f"{name} holds no text")
    return Texts(name=name, documents=documents)


def general_documents(folder: Path) -> Iterator[Document]:
    """Of the built-in set and of every set in `folder`; what cannot be read as one measures nothing, and has none."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    for name in (BUILTIN, *(path.name for path in paths)):
        try:
            yield from read_texts(name, folder).documents
        except NoTexts as error:
            log.warning("%s", error)


def builtin_texts() -> Texts:
    """The same on one installation; other versions of Python and of packages have other words, so another digest."""
    long = [name for name in sorted(topics) if len(topics[name]) >= 2 * NUM_CHARACTERS]
    found = [Document(name=f"python: {name}", text=_middle(topics[name])) for name in long[:NUM_TOPICS]]
    for package in PACKAGES:
        for file in metadata.files(package) or []:
            if file.name.startswith("LICENSE") and file.parent.name == "licenses":
                text = Path(str(file.locate())).read_text("utf-8")
                found.append(Document(name=f"{package}: {file.name}", text=_middle(text)))
    return Texts(name=BUILTIN, documents=tuple(found))


def _middle(text: str) -> str:
    """Headings and copyright lines stand at the beginning."""
    start = max(0, (len(text) - NUM_CHARACTERS) // 2)
    return text[start : start + NUM_CHARACTERS]


def _from_lines(text: str) -> tuple[Document, ...]:
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return tuple(
        Document(name=str(row.get("name", number)), text=str(row["text"]))
        for number, row in enumerate(rows, 1)
        if str(row["text"]).strip()
    )


def _from_text(text: str) -> tuple[Document, ...]:
    parts = [part.strip() for part in re.split(r"\n\s*\n", text)]
    return tuple(Document(name=str(number), text=part) for number, part in enumerate(filter(None, parts), 1))
