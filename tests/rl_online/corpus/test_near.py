import pytest

from evals.overlap import hashed
from rl_online.corpus.leaks import Problems
from rl_online.corpus.near import bands_of, signature_of, similarity


def words(start, count):
    return " ".join(f"w{number}" for number in range(start, start + count))


def test_equal_minima_estimate_what_two_texts_share():
    # 200 words have 193 8-grams; of the second text's, 100 are also the first's: 100 / 286
    one, other = (signature_of(hashed(words(start, 200))) for start in (0, 93))
    assert similarity(one, other) == pytest.approx(100 / 286, abs=0.1)


def test_a_text_with_one_word_changed_meets_its_original_in_a_band():
    text = words(0, 300)
    one, other = signature_of(hashed(text)), signature_of(hashed(text.replace("w150 ", "x ")))
    assert set(bands_of(one)) & set(bands_of(other))
    assert similarity(one, other) > 0.75


def test_a_short_text_is_near_only_itself():
    one, same, other = (signature_of(hashed(text)) for text in ("x = 1", "X =  1", "x = 2"))
    assert (similarity(one, same), similarity(one, other) < 0.1) == (1.0, True)


def test_a_text_longer_than_a_chunk_has_the_minima_of_all_its_parts():
    one = signature_of(hashed(words(0, 9000), max_words=9000))
    other = signature_of(hashed(words(0, 9000) + " end", max_words=9001))
    assert similarity(one, other) > 0.95


PROBLEM = "write a function that takes " + words(0, 40)


@pytest.mark.parametrize(
    ("document", "leaks"),
    [
        (PROBLEM, True),
        (f"# notes\n{PROBLEM.upper()}\nand more", True),
        (words(1000, 30) + " " + words(0, 40), True),
        ("write a function that takes " + words(500, 40), False),
        (words(0, 20), False),
        ("", False),
    ],
    ids=["same", "among others", "most of it", "only its opening", "less than half", "nothing"],
)
def test_a_document_leaks_when_it_holds_half_of_a_problem(document, leaks):
    problems = Problems(map(hashed, [words(2000, 60), PROBLEM]))
    assert problems.leak_into(hashed(document)) is leaks


def test_a_digest_of_problems_is_the_same_in_any_order():
    one, other = hashed(words(0, 30)), hashed(words(50, 30))
    assert Problems([one, other]).digest == Problems([other, one]).digest != Problems([one]).digest
