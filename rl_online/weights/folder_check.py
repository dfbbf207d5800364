"""What keeps a Hugging Face folder from being served and trained, found without loading it.

Each fault names the file and what would be right. Not here: whether transformers can really load it (commands.store
tries it once), and the manifest.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNSAFE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".py")
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000


class UnusableFolder(ValueError):
    """The first thing that is wrong with the folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    notes: tuple[str, ...]  # what will not work, though the folder can be used


def check_folder(folder: Path) -> Checked:
    """Raises UnusableFolder, whose message names the file and the fix."""
    if not folder.is_dir():
        raise UnusableFolder(f"{folder.name or folder} is no folder; give the path of a Hugging Face model folder")
    files = sorted(path for path in folder.rglob("*") if not path.is_dir())
    for path in files:
        _check_safe(path, folder)
    _check_config(folder)
    for path in _weights(folder):
        _check_header(path)
    return Checked(notes=_check_tokenizer(folder))


def _check_safe(path: Path, folder: Path) -> None:
    name = path.relative_to(folder)
    if path.is_symlink():
        raise UnusableFolder(f"{name} is a symbolic link; copy the file itself into the folder")
    if path.suffix in UNSAFE_SUFFIXES:
        fix = (
            "remove it"
            if path.suffix == ".py"
            else "save the weights with save_pretrained(..., safe_serialization=True)"
        )
        raise UnusableFolder(f"{name} may run code when loaded; {fix}")


def _check_config(folder: Path) -> None:
    if (folder / "adapter_config.json").is_file():
        raise UnusableFolder("adapter_config.json: this is an adapter; merge it into its base and save the whole model")
    config = _object(folder, "config.json", missing="save the model with save_pretrained(folder)")
    if not config.get("model_type"):
        raise UnusableFolder("config.json names no model_type; take the config.json that belongs to the weights")
    for name in ("config.json", "tokenizer_config.json"):
        if (folder / name).is_file() and "auto_map" in _object(folder, name):
            raise UnusableFolder(
                f"{name} asks for code of its own (auto_map); Strop runs none: use an architecture of transformers"
            )


def _weights(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise UnusableFolder(
            "there is no .safetensors file, and at least one is needed; save with safe_serialization=True"
        )
    if (folder / INDEX).is_file():
        shards = _object(folder, INDEX).get("weight_map")
        if not isinstance(shards, dict):
            raise UnusableFolder(f"{INDEX} has no weight_map; save the model again")
        missing = sorted(set(map(str, shards.values())) - {path.name for path in found})
        if missing:
            raise UnusableFolder(f"{missing[0]} is named by {INDEX} and missing; copy it into the folder")
    return found


def _check_header(path: Path) -> None:
    """The table of tensors at a file's head, and that the file is as long as it says."""
    size = path.stat().st_size
    with path.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        if size < 8 or not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
            raise UnusableFolder(f"{path.name} is no safetensors file; copy it again")
        try:
            table = json.loads(handle.read(length))
            ends = [row["data_offsets"][1] for name, row in table.items() if name != "__metadata__"]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise UnusableFolder(f"{path.name} has a table of tensors that cannot be read; copy it again") from error
    if not ends or 8 + length + max(ends) != size:
        said = 8 + length + max(ends, default=0)
        raise UnusableFolder(f"{path.name} has {size:,} bytes, its table says {said:,}; copy it again, whole")


def _check_tokenizer(folder: Path) -> tuple[str, ...]:
    has_fast = (folder / "tokenizer.json").is_file()
    has_slow = (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    if not (has_fast or has_slow or (folder / "tokenizer.model").is_file()):
        raise UnusableFolder("tokenizer.json is missing; save the tokenizer with tokenizer.save_pretrained(folder)")
    if has_fast:
        _object(folder, "tokenizer.json")
    config = _object(folder, "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    if config.get("chat_template") or (folder / "chat_template.jinja").is_file():
        return ()
    return (
        "no chat_template.jinja: chat requests are refused, /v1/completions works; add the template to serve chats",
    )


def _object(folder: Path, name: str, *, missing: str = "") -> dict[str, Any]:
    try:
        found = json.loads((folder / name).read_bytes())
    except FileNotFoundError:
        raise UnusableFolder(f"{name} is missing; {missing}") from None
    except (ValueError, RecursionError) as error:
        raise UnusableFolder(f"{name} is not JSON; copy it again") from error
    if not isinstance(found, dict):
        raise UnusableFolder(f"{name} is not a JSON object; copy it again")
    return found
