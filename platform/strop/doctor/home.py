"""The home folder: whose it is, who may look into it, whether somebody runs on it, when it was last backed up."""

import os
from datetime import UTC, datetime, timedelta

from registry.backups import Journal
from strop.doctor.finding import Finding, broken, ok, skipped, warning
from strop.home import Home
from strop.local.lock import is_locked, read_state

OLD_BACKUP = timedelta(days=7)


def folder(home: Home) -> Finding:
    if not home.root.exists():
        return skipped("home", f"{home.root} is not there yet; strop up makes it")
    found = home.root.stat()
    if found.st_uid != os.geteuid():
        return broken(
            "home",
            f"{home.root} belongs to uid {found.st_uid}; you are {os.geteuid()}",
            why="Files that another user owns cannot be kept private or written.",
            fix=f"Run as that user, or choose another home: strop --home FOLDER. Else: chown -R {os.geteuid()}",
        )
    if found.st_mode & 0o077:
        return warning(
            "home",
            f"{home.root} has mode {found.st_mode & 0o777:o}",
            why="Others on this machine may read turns, logs and backups.",
            fix=f"chmod 700 {home.root}",
        )
    return ok("home", f"{home.root}, yours alone")


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
