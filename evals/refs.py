"""How benchmarks and problems are named in text: `<benchmark>@<version>` and `<benchmark>@<version>/<id>`."""

from dataclasses import dataclass

from registry.errors import InvalidInput

MAX_LENGTH = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkRef:
    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemRef:
    """Example: "editor-live@2/add/17" is problem "add/17" of version 2 of "editor-live"."""

    benchmark: BenchmarkRef
    problem_id: str

    def __str__(self) -> str:
        return f"{self.benchmark}/{self.problem_id}"


def benchmark_ref(text: str, *, field: str = "benchmark") -> BenchmarkRef:
    """Raises InvalidInput naming `field`."""
    name, at, version = text.rpartition("@")
    if not (at and name and version.isascii() and version.isdigit() and len(version) < 10 and len(text) <= MAX_LENGTH):
        raise InvalidInput(f"found {text[:100]!r}; write <benchmark>@<version>", field=field)
    return BenchmarkRef(name=name, version=int(version))


def problem_ref(text: str, *, field: str = "problem") -> ProblemRef:
    """Raises InvalidInput naming `field`."""
    benchmark, slash, problem_id = text.partition("/")
    if not (slash and problem_id and len(text) <= MAX_LENGTH):
        raise InvalidInput(f"found {text[:100]!r}; write <benchmark>@<version>/<id>", field=field)
    return ProblemRef(benchmark=benchmark_ref(benchmark, field=field), problem_id=problem_id)
