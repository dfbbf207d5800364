"""Which tokens of an edit are the user's, worked by hand."""

import pytest

from rl_online.rewards.edited_span import edited_tokens


@pytest.mark.parametrize(
    ("original", "edited", "marks"),
    [
        ([1, 2, 3, 4], [1, 9, 3, 5, 4], [0, 1, 0, 1, 0]),  # one replaced, one put in
        ([1, 2, 3, 4], [1, 4], [0, 1]),  # two taken out: what follows is what should have come instead
        ([1, 2, 0], [1, 2, 7, 0], [0, 0, 1, 0]),  # written on, before the end token
        ([1, 2, 0], [1, 0], [0, 1]),  # cut short: the end should have come earlier
        ([1, 2, 3], [1, 2], [0, 0]),  # only the tail is gone and nothing stands in its place
        ([1, 2], [1, 2], [0, 0]),
        ([], [4, 5], [1, 1]),  # nothing was answered
    ],
)
def test_only_what_the_user_changed_is_marked(original, edited, marks):
    assert edited_tokens(original, edited) == marks


def test_one_token_put_into_a_text_that_repeats_itself_is_all_that_is_marked():
    original = [1, 2] * 200
    assert edited_tokens(original, [*original[:100], 7, *original[100:]]) == [0] * 100 + [1] + [0] * 300
