"""Which benchmark problems a live turn may be linked to: any that is not held out. Inside a tenant."""

from collections.abc import Iterable, Mapping

from evals.models import Benchmark

MAX_LENGTH = 300


def refused_links(links: Iterable[str]) -> Mapping[str, str]:
    """{link: why it is refused}; links look like `<benchmark>@<version>/<id>`."""
    parsed = {link: _benchmark(link) for link in links}
    names = {benchmark[0] for benchmark in parsed.values() if benchmark}
    held_out = set(Benchmark.objects.filter(is_held_out=True, name__in=names).values_list("name", "version"))
    refused = {}
    for link, benchmark in parsed.items():
        if benchmark is None:
            refused[link] = f"found {link[:100]!r}; write <benchmark>@<version>/<id>"
        elif benchmark in held_out:
            refused[link] = f"{benchmark[0]}@{benchmark[1]} is held out; live turns may not link to it"
    return refused


def _benchmark(link: str) -> tuple[str, int] | None:
    benchmark, slash, problem = link.partition("/")
    name, at, version = benchmark.rpartition("@")
    is_link = slash and at and name and problem and len(link) <= MAX_LENGTH
    return (name, int(version)) if is_link and version.isascii() and version.isdigit() and len(version) < 10 else None
