"""ESLint for JavaScript and TypeScript, where Node.js and eslint are installed: one warm worker for each process.

It needs a fifth of a second to start and a millisecond or two for a file. TypeScript also needs
@typescript-eslint/parser beside it.
"""

import atexit
import json
import os
import select
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from evals.scorers.lint.finding import ERROR, LIKELY_BUG, OTHER, Finding, LinterUnavailable, NotParsed
from evals.scorers.source import JAVASCRIPT, TYPESCRIPT

WEIGHTS = {
    **dict.fromkeys(
        (
            "constructor-super", "for-direction", "getter-return", "no-class-assign", "no-const-assign",
            "no-dupe-args", "no-dupe-class-members", "no-dupe-else-if", "no-dupe-keys", "no-duplicate-case",
            "no-func-assign", "no-import-assign", "no-invalid-regexp", "no-obj-calls", "no-setter-return",
            "no-this-before-super", "no-undef", "no-unsafe-finally", "use-isnan", "valid-typeof",
        ),
        ERROR,
    ),
    **dict.fromkeys(
        (
            "array-callback-return", "eqeqeq", "no-async-promise-executor", "no-cond-assign",
            "no-constant-binary-expression", "no-constant-condition", "no-empty", "no-empty-pattern", "no-eval",
            "no-ex-assign", "no-fallthrough", "no-implied-eval", "no-loop-func", "no-new-func", "no-redeclare",
            "no-self-assign", "no-self-compare", "no-shadow-restricted-names", "no-sparse-arrays",
            "no-unreachable", "no-unreachable-loop", "no-unsafe-negation", "no-unused-vars",
            "no-use-before-define", "require-yield",
        ),
        LIKELY_BUG,
    ),
    **dict.fromkeys(
        (
            "no-else-return", "no-extra-boolean-cast", "no-lonely-if", "no-unneeded-ternary", "no-useless-catch",
            "no-useless-concat", "no-useless-escape", "no-useless-return", "no-var", "object-shorthand",
            "prefer-const", "prefer-template",
        ),
        OTHER,
    ),
}  # fmt: skip
# The compiler's business, or wrong about types without its plugin.
NOT_FOR_TYPESCRIPT = {
    "constructor-super", "getter-return", "no-const-assign", "no-dupe-args", "no-dupe-class-members", "no-dupe-keys",
    "no-func-assign", "no-import-assign", "no-obj-calls", "no-redeclare", "no-setter-return", "no-this-before-super",
    "no-undef", "no-unused-vars", "no-use-before-define", "array-callback-return",
}  # fmt: skip
_TUNED: dict[str, list[Any]] = {"no-use-before-define": ["error", {"functions": False}], "eqeqeq": ["error", "smart"]}

START_S, TIMEOUT_S = 20.0, 10.0
MAX_REPLY = 8 << 20  # bytes
_WORKER = Path(__file__).with_name("eslint_worker.cjs")


def findings(code: str, *, language: str) -> list[Finding]:
    """By line. Raises NotParsed, LinterUnavailable."""
    reply = _kept.ask({"code": code, "language": language})
    if "broken" in reply:
        raise NotParsed(str(reply["broken"])[:300])
    if "missing" in reply:
        raise LinterUnavailable(f"eslint cannot read {language} without {reply['missing']}; install it beside eslint")
    if "findings" not in reply:
        raise LinterUnavailable(f"eslint failed: {reply.get('failed')}")
    return [_finding(one) for one in reply["findings"] if one["rule"] in WEIGHTS]


def version() -> str:
    """E.g. `eslint 10.15.0`; starts the worker. Raises LinterUnavailable."""
    return f"eslint {_kept.version()}"


def rules_for(language: str) -> dict[str, Any]:
    """As eslint's configuration names them."""
    left_out = NOT_FOR_TYPESCRIPT if language == TYPESCRIPT else set()
    return {name: _TUNED.get(name, "error") for name in WEIGHTS if name not in left_out}


def _finding(one: dict[str, Any]) -> Finding:
    rule = str(one["rule"])
    return Finding(rule=rule, line=int(one["line"]), message=str(one["message"])[:200], weight=WEIGHTS[rule])


class _Worker:
    """A Node.js process that answers line by line; replaced when it dies, hangs, or we are a fork of its owner."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0
        self._version = ""

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._turn:
            process = self._ready()
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                return _read_line(process, TIMEOUT_S)
            except (OSError, ValueError) as error:
                self._drop()
                raise LinterUnavailable(f"eslint failed: {error}") from error

    def version(self) -> str:
        with self._turn:
            self._ready()
            return self._version

    def close(self) -> None:
        with self._turn:
            self._drop()

    def _ready(self) -> "subprocess.Popen[bytes]":
        if self._owner_pid != os.getpid():
            self._process, self._owner_pid = None, os.getpid()
        if self._process is None or self._process.poll() is not None:
            self._drop()
            node, folder = _node(), _package()
            rules = json.dumps({language: rules_for(language) for language in (JAVASCRIPT, TYPESCRIPT)})
            self._process = subprocess.Popen(
                [node, "--max-old-space-size=512", str(_WORKER), str(folder), rules],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, cwd="/",
            )  # fmt: skip
            try:
                self._version = str(_read_line(self._process, START_S)["version"])
            except (OSError, ValueError, KeyError) as error:
                self._drop()
                raise LinterUnavailable(f"eslint does not start: {error}") from error
        return self._process

    def _drop(self) -> None:
        if self._process is not None and self._owner_pid == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None


def _read_line(process: "subprocess.Popen[bytes]", timeout_s: float) -> dict[str, Any]:
    """Raises ValueError when it stays silent, ends, or says too much."""
    assert process.stdout is not None
    descriptor, line = process.stdout.fileno(), bytearray()
    while not line.endswith(b"\n"):
        if not select.select([descriptor], [], [], timeout_s)[0]:
            raise ValueError("it did not answer in time")
        part = os.read(descriptor, 1 << 16)
        if not part or len(line) > MAX_REPLY:
            raise ValueError("it ended" if not part else "its answer is too long")
        line += part
    reply: dict[str, Any] = json.loads(line)
    return reply


def _node() -> str:
    found = shutil.which("node")
    if found is None:
        raise LinterUnavailable("Node.js is not installed, which eslint needs")
    return found


def _package() -> Path:
    """The folder of the eslint package whose command is on the path."""
    found = shutil.which("eslint")
    if found is None:
        raise LinterUnavailable("eslint is not installed; `npm install --global eslint` gives it")
    return Path(found).resolve().parents[1]


_kept = _Worker()
atexit.register(_kept.close)
