"""When one text counts as standing in another, by numbers worked by hand."""

import pytest

from evals.overlap import COMMON, SHARE, asked_text, common, hashed, nearest, shared


def words(first: int, end: int) -> str:
    return " ".join(f"word{n}" for n in range(first, end))


def test_case_punctuation_spacing_and_unicode_form_do_not_make_another_text():
    assert shared(hashed("Sort the LIST, please!"), hashed("sort  the\nlist please")) == 1.0
    assert hashed("\ufb01nd caf\u00e9").whole == hashed("find cafe\u0301").whole
    assert shared(hashed("sort the list"), hashed("sort the lists")) == 0.0  # too short for an n-gram


@pytest.mark.parametrize(
    ("problem", "other", "expected"),
    [
        (words(0, 20), words(0, 14) + " x y z", 7 / 13),  # short: 7 of its 13 8-grams
        (words(0, 30), words(0, 20), 8 / 18),  # long: 8 of its 18 13-grams
        (words(0, 30), words(0, 13) + " x " + words(13, 30), (1 + 5) / 18),  # those that do not cross the word between
        (words(0, 30), words(0, 12) + " x " + words(12, 24), 0.0),  # 8-grams, but no 13-gram
        (words(0, 8), words(100, 200), 0.0),
    ],
)
def test_the_share_of_a_problem_in_another_text(problem, other, expected):
    assert shared(hashed(problem), hashed(other)) == pytest.approx(expected)


def test_scripts_without_spaces_are_read_letter_by_letter():
    question = "\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341"
    assert shared(hashed(question), hashed("\u8bf7" + question)) == 1.0


def test_the_nearest_text_is_found_whichever_of_the_two_is_longer():
    others = [(1, hashed(words(0, 12))), (2, hashed(words(3, 60))), (3, hashed(words(50, 90)))]
    assert nearest(hashed(words(0, 40)), others) == (1, 1.0)  # all of it stands in the longer one
    assert nearest(hashed(words(40, 60)), others) == (2, 1.0)
    assert nearest(hashed(words(100, 140)), others) is None and SHARE == 0.5


def test_wording_that_most_samples_share_is_told_apart():
    samples = [hashed(f"{words(0, 10)} own{n} {words(n * 100 + 50, n * 100 + 60)}").grams for n in range(COMMON + 1)]
    assert sorted(common(samples)) == sorted(hashed(words(0, 10)).grams)
    assert len(common(samples[:-1])) == 0  # in 10 samples it is not common yet


def test_of_a_chat_the_system_message_is_not_compared():
    chat = [{"role": "system", "content": "You are kind."}, {"role": "user", "content": "Sort it"}]
    assert asked_text(None, chat) == "Sort it" and asked_text("raw", None) == "raw"
