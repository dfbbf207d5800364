import pytest

from evals.scorers.scorer import ProblemSpec
from evals.scorers.source import JAVASCRIPT, PYTHON, TYPESCRIPT, language_of, python_of, source_of

RAW = ProblemSpec(id="1", prompt="def f(a):\n    return")
CHAT = ProblemSpec(id="1", messages=[{"role": "user", "content": "write f"}])


def test_a_raw_prompt_is_continued_by_the_output():
    assert python_of(RAW, " a + 2") == "def f(a):\n    return a + 2"


@pytest.mark.parametrize(
    "reply",
    [
        "x = 1\n",
        "Sure:\n```python\nx = 1\n```\nDone.",
        "```\nx = 1\n```",
        "First:\n```py\nx = 0\n```\nNo, better:\n```Python\nx = 1\n```",
        "```python\nx = 1\n",
        "```python\nx = 1\n```\nRun it:\n```bash\nls\n```",
    ],
)
def test_a_chat_reply_stands_for_its_last_python_block(reply):
    assert python_of(CHAT, reply) == "x = 1\n"


@pytest.mark.parametrize(
    ("problem", "output", "language"),
    [
        (RAW, " a + 2", PYTHON),
        (CHAT, "no code", PYTHON),
        (CHAT, "```js\nlet a\n```\n```ts\nlet a: number\n```", TYPESCRIPT),
        (CHAT, "```jsx\n<p/>\n```\n```\nx\n```", JAVASCRIPT),
        (CHAT, "```Rust\nfn main() {}\n```", "rust"),
        (ProblemSpec(id="1", prompt="function f(", slices={"language": "JavaScript"}), "", JAVASCRIPT),
        (ProblemSpec(id="1", messages=[], slices={"language": "ts"}), "```python\nx\n```", TYPESCRIPT),
    ],
)
def test_the_language_is_the_problems_else_the_replys_last_blocks(problem, output, language):
    assert language_of(problem, output) == language


def test_the_last_block_in_the_language_is_taken():
    reply = "```ts\nlet a = 1\n```\n```js\nlet b\n```\n```sh\nls\n```"
    assert source_of(CHAT, reply, language=TYPESCRIPT) == "let a = 1\n"
