"""How clean code is, from a linter's findings per line.

    value = max(0, 1 - (5 x errors + 2 x likely bugs + 1 x others) / lines)

after pylint's rating, 10 x (1 - (5 x errors + others) / statements). Lines are those of the output that hold code, not
blank or comment only. Rules, weights and options are fixed here, and nothing an answer writes (a `noqa`, an
`eslint-disable`, a configuration) turns one off. What a rule finds is its linter's to say: ruff comes with Strop, so
its release is part of the version; eslint's stands in the parts. Linters only parse: no answer runs here.

Python by ruff, JavaScript and TypeScript by eslint. Unscored where the linter is missing, for other languages, for no
code, and for code that does not parse, which is what executability measures.
"""

from dataclasses import dataclass

from evals.scorers.lint import eslint, ruff
from evals.scorers.lint.finding import Finding, Linter, LinterUnavailable, NotParsed
from evals.scorers.scorer import ProblemSpec, Score, Status, unscored
from evals.scorers.source import JAVASCRIPT, PYTHON, TYPESCRIPT, language_of, source_of

RULES = "1"  # changes with the formula, or with the rules and weights of a linter
MAX_CODE = 200_000  # characters; linters take time in proportion
MAX_SHOWN = 20  # findings kept in the parts
LINTERS: dict[str, Linter] = {PYTHON: ruff, JAVASCRIPT: eslint, TYPESCRIPT: eslint}
COMMENT = {PYTHON: ("#",), JAVASCRIPT: ("//", "/*", "*"), TYPESCRIPT: ("//", "/*", "*")}


class CodeQuality:
    """1 for code in which the linter finds nothing, less by weighted findings per line, 0 at worst."""

    name = "code_quality"

    def __init__(self) -> None:
        self.version = f"{RULES}+{ruff.version().replace(' ', '')}"

    def score(self, problem: ProblemSpec, output: str) -> Score:
        language = language_of(problem, output)
        linter = LINTERS.get(language)
        if linter is None:
            return unscored(f"no linter here for {language[:40]}")
        code = source_of(problem, output, language=language)
        first = 1 + (problem.prompt or "").count("\n")  # the prompt's last line is shared with the output
        num_lines = count_lines(code, comment=COMMENT[language], first=first)
        if num_lines == 0:
            return unscored("there is no code")
        if len(code) > MAX_CODE:
            return unscored(f"{len(code)} characters of code; {MAX_CODE} are looked at")
        try:
            findings = linter.findings(code, language=language)
        except NotParsed as error:
            return unscored(f"it does not parse: {error}")
        except LinterUnavailable as error:
            return unscored(str(error))
        return _score([one for one in findings if one.line >= first], num_lines=num_lines, tool=linter.version())


def count_lines(code: str, *, comment: tuple[str, ...], first: int = 1) -> int:
    """Lines from number `first` on that are neither blank nor a comment."""
    lines = (line.strip() for line in code.split("\n")[first - 1 :])
    return sum(bool(line) and not line.startswith(comment) for line in lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighed:
    """Findings as the formula takes them."""

    penalty: int
    num_lines: int

    @property
    def value(self) -> float:
        return max(0.0, 1.0 - self.penalty / self.num_lines)


def weigh(findings: list[Finding], *, num_lines: int) -> Weighed:
    return Weighed(penalty=sum(one.weight for one in findings), num_lines=num_lines)


def _score(findings: list[Finding], *, num_lines: int, tool: str) -> Score:
    weighed = weigh(findings, num_lines=num_lines)
    first = f", first {findings[0].rule} on line {findings[0].line}: {findings[0].message}" if findings else ""
    return Score(
        value=weighed.value,
        status=Status.SCORED,
        explanation=f"{len(findings)} findings of weight {weighed.penalty} on {num_lines} lines{first}",
        parts={
            "tool": tool, "lines": num_lines, "penalty": weighed.penalty, "num_findings": len(findings),
            "findings": [one.to_json() for one in findings[:MAX_SHOWN]],
        },
    )  # fmt: skip
