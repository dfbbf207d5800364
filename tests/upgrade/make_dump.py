"""Make the stored old database that `test_upgrade.py` migrates: `python tests/upgrade/make_dump.py 009af23`.

The commit's own code is unpacked to a temporary folder, migrates an embedded PostgreSQL and fills every table; what
pg_dump writes goes to `tests/upgrade/<commit>.sql.gz`. Run once for each version that was handed out; the file is
committed and never made again. It holds made-up rows and no secret of anybody.
"""

import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOT_PORTABLE = (b"\\restrict", b"\\unrestrict", b"SET transaction_timeout")  # other versions of psql stop at these


def main(commit: str) -> int:
    with tempfile.TemporaryDirectory(prefix="strop-old-", dir="/var/tmp") as scratch:
        old, plain = Path(scratch) / "code", Path(scratch) / "plain.sql"
        old.mkdir()
        tree = subprocess.run(["git", "archive", commit], cwd=HERE.parents[1], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x"], input=tree.stdout, cwd=old, check=True)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{old}:{old / 'platform'}",  # comes before the installed checkout
            "DJANGO_SETTINGS_MODULE": "strop.settings",
            "STROP_HOME": f"{scratch}/home",
        }

        def run(*words: object) -> str:
            command = [sys.executable, *map(str, words)]
            done = subprocess.run(command, cwd=old, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            return done.stdout

        empty = run(HERE / "old_rows.py", plain).split()
        run("-m", "strop.local.remove", f"{scratch}/home")
        if empty:
            print(f"no rows in {', '.join(sorted(empty))}; old_rows.py has to fill them", file=sys.stderr)
            return 1
        lines = [line for line in plain.read_bytes().split(b"\n") if not line.startswith(NOT_PORTABLE)]
        target = HERE / f"{commit}.sql.gz"
        target.write_bytes(gzip.compress(b"\n".join(lines), mtime=0))
        print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
