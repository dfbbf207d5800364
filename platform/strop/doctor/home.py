"""The home folder: whose it is, who may look into it, whether somebody runs on it, when it was last backed up."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from registry.backups import Journal
from strop.doctor.finding import Finding, broken, ok, skipped, warning
from strop.doctor.machine import nearest
from strop.home import Home
from strop.local.lock import is_locked, read_state

OLD_BACKUP = timedelta(days=7)


def is_usable(home: Home) -> bool:
    """Whether we may look into it and write, or make it where it is not there yet."""
    return all(_is_ours_to_use(nearest(place)) for place in (home.root, home.run, home.root / "secrets"))


def folder(home: Home) -> Finding:
    if not os.path.exists(home.root):
        place = nearest(home.root)
        if not _is_ours_to_use(place):
            return _unusable(f"{home.root} is not there, and you (uid {os.geteuid()}) may not make it in {place}")
        return skipped("home", f"{home.root} is not there yet; strop up makes it")
    owner = home.root.stat().st_uid
    if owner != os.geteuid():
        return broken(
            "home",
            f"{home.root} belongs to uid {owner}; you are {os.geteuid()}",
            why="Files that another user owns cannot be kept private or written.",
            fix="Run as that user, or choose another home: strop --home FOLDER. "
            f"Else, as root: chown -R {os.geteuid()} {home.root}",
        )
    if not _is_ours_to_use(home.root):
        return _unusable(f"{home.root} cannot be read and written by you (uid {os.geteuid()})")
    for inner in (home.run, home.root / "secrets"):  # strop up refuses them otherwise
        if inner.exists() and (inner.stat().st_uid != os.geteuid() or inner.stat().st_mode & 0o077):
            return broken(
                "home",
                f"{inner} belongs to uid {inner.stat().st_uid} with mode {inner.stat().st_mode & 0o777:o}",
                why="It holds the sockets, the lock or the passwords of this home: nobody else may enter.",
                fix=f"As root: chown -R {os.geteuid()} {inner}; then chmod 700 {inner}",
            )
    if home.root.stat().st_mode & 0o077:
        return warning(
            "home",
            f"{home.root} has mode {home.root.stat().st_mode & 0o777:o}",
            why="Others on this machine may read turns, logs and backups.",
            fix=f"chmod 700 {home.root}",
        )
    return ok("home", f"{home.root}, yours alone")


def _is_ours_to_use(folder: Path) -> bool:
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _unusable(found: str) -> Finding:
    return broken(
        "home",
        found,
        why="Nothing can be kept there: no turn, no weights, no log.",
        fix="Choose another home, strop --home FOLDER, or let its folder be writable: its permissions, its owner, and "
        "whether the disk is mounted read-only.",
    )


def running(home: Home) -> Finding:
    if not is_locked(home):
        return skipped("running", "nothing runs on this home; strop up starts it")
    state = read_state(home)
    return ok("running", f"pid {state.get('pid')} at {state.get('url')}, since {state.get('started_at')}")


def backup(home: Home) -> Finding:
    why = "A disk that dies takes users' turns and every checkpoint along."
    fix = "strop backup /mnt/other-disk/strop.tar.zst, e.g. nightly from cron."
    said = Journal(home.run).read()
    if not said and not home.data.exists() and not os.environ.get("DATABASE_URL"):
        return skipped("backup", "nothing to back up yet")
    if said.get("state") == "failed":
        return warning("backup", f"the last one failed: {said['error'][:300]}", why=why, fix=fix)
    last = said.get("last")
    if last is None:
        return warning("backup", "none was ever made", why=why, fix=fix)
    age = datetime.now(UTC) - datetime.fromisoformat(last["created_at"].replace("Z", "+00:00"))
    found = f"{last['file']}, {age.days} days and {age.seconds // 3600} hours old"
    return warning("backup", found, why=why, fix=fix) if age > OLD_BACKUP else ok("backup", found)
