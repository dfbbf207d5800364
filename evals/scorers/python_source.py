"""The Python module an output stands for: what a sandbox should load."""

import re

from evals.scorers.scorer import ProblemSpec

# An opening fence, its language, and everything up to the closing fence or, in a reply that was cut off, the end.
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


def source_of(problem: ProblemSpec, output: str) -> str:
    """Prompt and output joined for a raw prompt; for a chat, the reply's last Python block, or all of it."""
    if problem.prompt is not None:
        return problem.prompt + output
    blocks = [(language.lower(), body) for language, body in _FENCE.findall(output)]
    python = [body for language, body in blocks if language in ("python", "py", "python3", "")]
    return python[-1] if python else output
