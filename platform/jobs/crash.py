"""Named points at which a test may kill the process, to prove that nothing acknowledged is lost there.

`CRASH_AT=ingest.after_commit,update.mid_save` ends a process at each of these as kill -9 would; the point's name is
appended to the file `CRASH_LOG` first, so that a test can assert that it was reached, and so that it fires once.
Without CRASH_AT a point costs one look into an empty set.
"""

import os

_WANTED = frozenset(os.environ.get("CRASH_AT", "").split(",")) - {""}


def point(name: str) -> None:
    if name not in _WANTED:
        return
    log = os.environ.get("CRASH_LOG")
    if log:
        with open(log, "a+") as handle:
            handle.seek(0)
            if name in handle.read().split():
                return  # once per log: the restarted process carries on
            handle.write(name + "\n")
            handle.flush()
            os.fsync(handle.fileno())
    os._exit(137)
