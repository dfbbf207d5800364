"""The account the embedded servers run as, and the folders it may enter.

PostgreSQL refuses to run as root. When Strop is root these two servers alone become `nobody`; no user is created and no
mode of a folder that was there before is changed.
"""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path


class UnsafeFolder(RuntimeError):
    """A private folder exists already and belongs to, or is open to, somebody else."""


@dataclass(frozen=True, kw_only=True)
class Account:
    uid: int
    gid: int


def server_account() -> Account | None:
    """Whom the embedded servers run as; None: as ourselves."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return Account(uid=nobody.pw_uid, gid=nobody.pw_gid)


def make_private_folder(folder: Path, account: Account | None) -> None:
    """Create `folder` with mode 0700 for `account`; parents that are missing are made enterable by everybody."""
    uid = os.geteuid() if account is None else account.uid
    if not folder.exists():
        make_open_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        if account is not None:
            os.chown(folder, account.uid, account.gid)
    found = folder.stat()
    if found.st_uid != uid or found.st_mode & 0o077:
        raise UnsafeFolder(
            f"{folder} belongs to uid {found.st_uid} with mode {found.st_mode & 0o777:o}; want {uid}, 700"
        )


def make_open_folder(folder: Path) -> None:
    if not folder.exists():
        make_open_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
