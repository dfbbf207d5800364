import asyncio
import time

from strop.demo.trying import TIME_LIMIT_S, Workbench
from strop.demo.variants import Case, Exercise

ADD_SEVEN = Exercise(
    problem_id="add_constant-1",
    family="add_constant",
    prompt='def add(n):\n    """Return n plus 7."""\n    return',
    function="add",
    cases=(Case(args=[3], expected=10), Case(args=[-7], expected=0)),
    reference=" n + 7",
)


def passes(answer):
    return asyncio.run(Workbench().passes(ADD_SEVEN, answer))


def test_a_right_answer_passes_and_a_wrong_one_fails():
    assert passes(" n + 7")
    assert not passes(" n + 8")
    assert not passes(" n +")


def test_an_answer_without_an_end_is_stopped():
    started = time.monotonic()
    assert not passes(" sum(1 for _ in iter(int, 1))")
    assert time.monotonic() - started < TIME_LIMIT_S + 2


def test_an_answer_cannot_eat_the_memory():
    assert not passes(" len('x' * (n + 10) * 10 ** 10)")


def test_an_answer_cannot_import_open_or_leave():
    assert not passes(" __import__('os').getpid() and n + 7")
    assert not passes(" open('/etc/passwd') and n + 7")
    assert not passes(" exit(42)")


def test_many_answers_are_tried_beside_each_other():
    async def try_all():
        bench = Workbench(width=2)
        return await asyncio.gather(*(bench.passes(ADD_SEVEN, f" n + {k}") for k in (6, 7, 8, 7)))

    assert asyncio.run(try_all()) == [False, True, False, True]
