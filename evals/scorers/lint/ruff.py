"""Ruff, one short process a call: it starts in milliseconds, so none is kept waiting."""

import json
import subprocess
from functools import cache
from importlib import metadata
from typing import Any

from ruff import find_ruff_bin

from evals.scorers.lint.finding import ERROR, LIKELY_BUG, OTHER, Finding, LinterUnavailable, NotParsed

# pyflakes, pycodestyle's statements and runtime checks, bugbear, comprehensions, simplify, pylint's errors and
# warnings, return, unnecessary code, performance. Nothing on layout, naming, typing or the age of its Python.
SELECT = ("F", "E4", "E7", "E9", "B", "C4", "SIM", "PLE", "PLW", "RET", "PIE", "PERF")
WEIGHTS = {"F": LIKELY_BUG, "B": LIKELY_BUG, "PLW": LIKELY_BUG, "E9": ERROR, "PLE": ERROR, "F821": ERROR}
TIMEOUT_S = 10.0
_FIXED = (
    "check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--output-format", "json",
    "--target-version", "py311", "--select", ",".join(SELECT), "--stdin-filename", "answer.py", "-",
)  # fmt: skip


def findings(code: str, *, language: str) -> list[Finding]:
    """By line. Raises NotParsed, LinterUnavailable."""
    try:
        done = subprocess.run(
            [_binary(), *_FIXED],
            input=code.encode(errors="surrogatepass"),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd="/",
            env={},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinterUnavailable(f"ruff failed: {error}") from error
    if done.returncode != 0:
        raise _failure(done.stderr.decode(errors="replace"))
    found = json.loads(done.stdout)
    if broken := next((one for one in found if one["code"] in (None, "invalid-syntax")), None):
        raise NotParsed(f"line {broken['location']['row']}: {broken['message']}")
    return sorted((_finding(one) for one in found), key=lambda one: (one.line, one.rule))


@cache
def version() -> str:
    """E.g. `ruff 0.17.6`."""
    return f"ruff {metadata.version('ruff')}"


def _failure(message: str) -> Exception:
    if "UTF-8" in message:
        return NotParsed("it is not valid Unicode")
    return LinterUnavailable(f"ruff failed: {message[:300]}")


@cache
def _binary() -> str:
    return str(find_ruff_bin())


def _finding(one: dict[str, Any]) -> Finding:
    rule = str(one["code"])
    return Finding(rule=rule, line=one["location"]["row"], message=str(one["message"])[:200], weight=weight_of(rule))


def weight_of(rule: str) -> int:
    """By the longest prefix that WEIGHTS names."""
    return next((WEIGHTS[rule[:end]] for end in range(len(rule), 0, -1) if rule[:end] in WEIGHTS), OTHER)
