"""Remove a home and all that its embedded servers keep elsewhere: `python -m strop.local.remove FOLDER`."""

import shutil
import sys
from pathlib import Path

from strop.home import Home
from strop.local.lock import AlreadyRunning, is_locked


def remove(home: Home) -> None:
    """Raises AlreadyRunning while Strop runs there. A home that does not exist is removed already."""
    if is_locked(home):
        raise AlreadyRunning(f"Strop is running on {home.root}; stop it first")
    if home.server_root != home.root:
        shutil.rmtree(home.server_root, ignore_errors=True)
    shutil.rmtree(home.sockets, ignore_errors=True)
    if home.root.exists():
        shutil.rmtree(home.root)


def main() -> None:
    try:
        remove(Home(Path(sys.argv[1]).absolute()))
    except AlreadyRunning as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
