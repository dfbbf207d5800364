import pytest

from evals.scorers.python_source import source_of
from evals.scorers.scorer import ProblemSpec

RAW = ProblemSpec(id="1", prompt="def f(a):\n    return")
CHAT = ProblemSpec(id="1", messages=[{"role": "user", "content": "write f"}])


def test_a_raw_prompt_is_continued_by_the_output():
    assert source_of(RAW, " a + 2") == "def f(a):\n    return a + 2"


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
    assert source_of(CHAT, reply) == "x = 1\n"
