"""Child program of the crowd's own sandbox: runs one answer on its cases; the exit status tells.

Not Strop's sandbox (evals.scorers.sandbox): a user tries code on their own machine. Limits of time, memory and files,
no imports and no way out of memory for the one expression under trial; started with `python -I -S`.
"""

import builtins
import json
import resource
import sys
from typing import Any

PASSED = 42  # a status the answer cannot reach: it has no exit
MEMORY = 256 * 1024 * 1024
FORBIDDEN = {"open", "__import__", "exec", "eval", "compile", "input", "breakpoint", "help", "exit", "quit", "print"}


def main() -> int:
    work = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    allowed = {name: part for name, part in vars(builtins).items() if name not in FORBIDDEN}
    names: dict[str, Any] = {"__builtins__": allowed}
    try:
        exec(work["code"], names)  # noqa: S102 - what this process is for, under the limits above
        function = names[work["function"]]
        passed = all(function(*case["args"]) == case["expected"] for case in work["cases"])
    except Exception:
        return 1
    return PASSED if passed is True else 1


if __name__ == "__main__":
    sys.exit(main())
