"""pytest plugin: a run of the tests gets a home of its own, chosen before Django reads its settings.

Child processes of a test inherit it and so find the same database, sockets and secrets.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from strop.home import Home

os.environ["STROP_HOME"] = tempfile.mkdtemp(prefix="strop-test-")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
_home = Home(Path(os.environ["STROP_HOME"]))
(_home.root / "static").mkdir()
_owner = os.getpid()


@atexit.register
def _remove_home() -> None:
    if os.getpid() == _owner:
        for folder in {_home.root, _home.data.parent, _home.sockets}:
            shutil.rmtree(folder, ignore_errors=True)
