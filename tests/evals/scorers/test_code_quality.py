"""Quality by a linter's findings per line; JavaScript and TypeScript where eslint is installed."""

import shutil

import pytest

from evals.scorers.code_quality import CodeQuality, count_lines, weigh
from evals.scorers.lint import eslint, ruff
from evals.scorers.lint.finding import ERROR, LIKELY_BUG, OTHER, Finding, LinterUnavailable, NotParsed
from evals.scorers.scorer import ProblemSpec, Status

CHAT = ProblemSpec(id="chat", messages=[{"role": "user", "content": "write f"}])
CLEAN = "def f(values):\n    return [value + 2 for value in values]\n"
SLOPPY = (
    "import os\n"  # F401, likely bug
    "def f(a, b=[]):\n"  # B006, likely bug
    "    # a comment is no line of code\n"
    "\n"
    "    if a == None:\n"  # E711, other
    "        return 1\n"
    "    else:\n"  # RET505, other
    "        return undefined\n"  # F821, error
)


def quality(code, language="python"):
    return CodeQuality().score(CHAT, f"```{language}\n{code}```")


def test_clean_code_gets_everything():
    score = quality(CLEAN)
    assert (score.value, score.explanation) == (1.0, "0 findings of weight 0 on 2 lines")


def test_findings_are_weighed_by_line():
    # 2 + 2 + 1 + 1 + 5 = 11 on 6 lines is less than nothing; with 16 clean lines more: 1 - 11 / 22
    assert quality(SLOPPY).value == 0.0
    score = quality(SLOPPY + "".join(f"x{n} = {n}\n" for n in range(16)))
    assert score.value == pytest.approx(0.5)
    assert [one["rule"] for one in score.parts["findings"]] == ["F401", "B006", "E711", "RET505", "F821"]
    assert (score.parts["penalty"], score.parts["lines"], score.parts["tool"]) == (11, 22, ruff.version())


@pytest.mark.parametrize(
    ("rule", "weight"),
    [("E711", OTHER), ("SIM102", OTHER), ("F401", LIKELY_BUG), ("B006", LIKELY_BUG), ("F821", ERROR), ("E902", ERROR)],
)
def test_a_rule_weighs_what_its_longest_known_prefix_does(rule, weight):
    assert ruff.weight_of(rule) == weight


def test_the_formula_ends_at_nothing():
    bad = Finding(rule="F821", line=1, message="", weight=ERROR)
    assert weigh([bad], num_lines=10).value == 0.5
    assert weigh([bad] * 3, num_lines=10).value == 0.0


@pytest.mark.parametrize("silencer", ["# ruff: noqa\n", "# flake8: noqa\n", ""])
def test_an_answer_cannot_silence_its_findings(silencer):
    score = quality(f"{silencer}import os  # noqa\nprint(1)\n")
    assert (score.parts["num_findings"], score.value) == (1, 0.0)


def test_only_the_outputs_lines_count_for_a_raw_prompt():
    problem = ProblemSpec(id="raw", prompt="import os\ndef f(a):\n    return")
    assert CodeQuality().score(problem, " a + 2\n").value == 1.0
    assert (
        CodeQuality().score(problem, " b + 2\n").explanation.startswith("1 findings of weight 5 on 1 lines, first F821")
    )


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("```python\ndef f(:\n```", "it does not parse: line 1"),
        ("```python\n# nothing\n```", "there is no code"),
        ("```rust\nfn main() {}\n```", "no linter here for rust"),
        ("```python\n" + "x = 1\n" * 40_000 + "```", "240000 characters of code"),
    ],
)
def test_what_cannot_be_rated_is_unscored_and_says_why(reply, reason):
    score = CodeQuality().score(CHAT, reply)
    assert (score.value, score.status) == (None, Status.UNSCORED)
    assert score.explanation.startswith(reason)


def test_lines_are_those_that_hold_code():
    assert count_lines("x\n\n  # no\n y\n", comment=("#",)) == 2
    assert count_lines("x\n\n  # no\n y\n", comment=("#",), first=2) == 1


def test_the_version_names_the_release_that_decides():
    assert CodeQuality().version == f"1+{ruff.version().replace(' ', '')}"


SLOPPY_JS = "var x = 1\nif (x == 2) { y() } // eslint-disable-line\n"  # no-var 1, eqeqeq 2, no-undef 5


@pytest.mark.parametrize("language", ["js", "ts"])
def test_javascript_and_typescript_are_rated_where_eslint_is_and_else_unscored_with_the_reason(language):
    score = quality(SLOPPY_JS + "foo()\n" * 13, language)
    if score.status is Status.UNSCORED:
        assert shutil.which("node") is None or shutil.which("eslint") is None or language == "ts"
        assert "not installed" in score.explanation or "install it beside eslint" in score.explanation
        assert "install" in score.explanation
        return
    # 15 lines; for JavaScript 13 x 5 more for names that nobody defined
    rules = {one["rule"] for one in score.parts["findings"]}
    if language == "js":
        assert (score.value, rules) == (0.0, {"no-var", "eqeqeq", "no-undef"})
    else:
        assert (score.value, rules) == (pytest.approx(1 - 3 / 15), {"no-var", "eqeqeq"})


def test_a_missing_eslint_is_a_reason_and_no_failure(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LinterUnavailable, match="not installed"):
        eslint._Worker().ask({"code": "x", "language": "javascript"})


def test_eslint_keeps_one_worker_warm_and_replaces_a_dead_one():
    try:
        eslint.version()
    except LinterUnavailable as error:
        assert "not installed" in str(error)
        return
    worker = eslint._kept._process
    assert eslint.findings("let a = 1\n", language="javascript")
    assert eslint._kept._process is worker
    worker.kill()
    worker.wait()
    assert eslint.findings("let a = 1\n", language="javascript")
    with pytest.raises(NotParsed):
        eslint.findings("let a = ;", language="javascript")
