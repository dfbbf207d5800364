"""Which problems a live turn may be linked to. The room that knows the benchmarks answers; this one only asks.

`register` is called once, in `AppConfig.ready` of that room. Without a checker every link is taken.
"""

from collections.abc import Callable, Iterable, Mapping

Checker = Callable[[set[str]], Mapping[str, str]]

_checkers: list[Checker] = []


def register(checker: Checker) -> None:
    """`checker(links)` runs inside the tenant and answers {link: why it is refused}, e.g. for held-out problems."""
    _checkers.append(checker)


def refused(links: Iterable[str]) -> dict[str, str]:
    """{link: reason} of those no turn may carry."""
    wanted = set(links)
    return {link: reason for checker in _checkers if wanted for link, reason in checker(wanted).items()}
