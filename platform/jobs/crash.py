"""Named points at which a test may kill the process, to prove that nothing acknowledged is lost there.

`CRASH_AT=ingest.after_commit` ends the process there as kill -9 would; the point's name is appended to the file
`CRASH_LOG` first, so that a test can assert that the point was reached. Without CRASH_AT a point costs one comparison.
"""

import os

_WANTED = os.environ.get("CRASH_AT", "")


def point(name: str) -> None:
    if name != _WANTED:
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
