"""The program an output stands for, and the language it is written in."""

import re

from evals.scorers.scorer import ProblemSpec

PYTHON, JAVASCRIPT, TYPESCRIPT = "python", "javascript", "typescript"

# Names of languages as fences and problems spell them.
_NAMES = {
    "python": PYTHON, "py": PYTHON, "python3": PYTHON,
    "javascript": JAVASCRIPT, "js": JAVASCRIPT, "jsx": JAVASCRIPT, "mjs": JAVASCRIPT, "cjs": JAVASCRIPT,
    "typescript": TYPESCRIPT, "ts": TYPESCRIPT, "tsx": TYPESCRIPT,
}  # fmt: skip

# An opening fence, its language, and everything up to the closing fence or, in a reply that was cut off, the end.
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


def python_of(problem: ProblemSpec, output: str) -> str:
    """The Python module an output stands for: what a sandbox should load."""
    return source_of(problem, output, language=PYTHON)


def source_of(problem: ProblemSpec, output: str, *, language: str) -> str:
    """Prompt and output joined for a raw prompt; for a chat, the reply's last block in the language, or all of it."""
    if problem.prompt is not None:
        return problem.prompt + output
    blocks = [body for name, body in _blocks(output) if name == "" or _NAMES.get(name) == language]
    return blocks[-1] if blocks else output


def language_of(problem: ProblemSpec, output: str) -> str:
    """What the problem says in its slice `language`; else what the reply's last named block says; else Python.

    One that we have no name for is given back as it stands.
    """
    named = [problem.slices.get("language", "").lower()]
    if problem.prompt is None:
        named += [name for name, _ in reversed(_blocks(output))]
    found = next((name for name in named if name), PYTHON)
    return _NAMES.get(found, found)


def _blocks(output: str) -> list[tuple[str, str]]:
    return [(name.lower(), body) for name, body in _FENCE.findall(output)]
