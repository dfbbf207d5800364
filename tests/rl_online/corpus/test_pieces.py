import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rl_online.corpus.errors import UnusableRecipe
from rl_online.corpus.fim import KNOWN, Sentinels, arranged, cut
from rl_online.corpus.packing import pack
from rl_online.corpus.recipe import Recipe
from rl_online.corpus.tokens import Cutter
from tests.rl_online.corpus.making import FIM, byte_tokenizer


@given(st.text(max_size=60), st.integers(0, 1000))
def test_the_three_parts_are_the_document(text, seed):
    gap = cut(text, random.Random(seed))
    assert gap.prefix + gap.middle + gap.suffix == text


def test_both_orders_say_what_follows():
    # prefix a b (1 2), middle c d (3 4), suffix e f (5 6); sentinels 10, 11, 12
    to = Sentinels(prefix=10, suffix=11, middle=12)
    assert arranged([1, 2], [3, 4], [5, 6], to, suffix_first=False) == [10, 1, 2, 11, 5, 6, 12, 3, 4]
    assert arranged([1, 2], [3, 4], [5, 6], to, suffix_first=True) == [10, 11, 5, 6, 12, 1, 2, 3, 4]


def read_back(folder, ids):
    """The document that a piece was made of."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prefix, suffix, middle = (tokenizer.token_to_id(name) for name in FIM)
    assert ids[-1] == tokenizer.token_to_id("<|endoftext|>")
    ids = ids[:-1]
    if prefix not in ids:
        return tokenizer.decode(ids, skip_special_tokens=False)
    first, second, third = ids.index(prefix), ids.index(suffix), ids.index(middle)
    before, after, last = ids[first + 1 : second], ids[second + 1 : third], ids[third + 1 :]
    parts = (last, after) if second == first + 1 else (before, last, after)
    return "".join(tokenizer.decode(part, skip_special_tokens=False) for part in parts)


@settings(deadline=None, max_examples=30)
@given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=120), seed=st.integers(0, 99))
def test_a_document_comes_back_out_of_its_piece(tmp_path_factory, text, seed):
    folder = byte_tokenizer(tmp_path_factory.mktemp("checkpoint"))
    (piece,) = Cutter(folder, Recipe(row_tokens=1024, fim=0.8, seed=seed)).pieces(text, "name")
    assert read_back(folder, piece.token_ids) == text


def test_a_document_that_names_a_special_token_does_not_write_one(tmp_path):
    cutter = Cutter(byte_tokenizer(tmp_path), Recipe())
    (piece,) = cutter.pieces("a<|endoftext|>b<fim_prefix>", "name")
    assert len(piece.token_ids) == len("a<|endoftext|>b<fim_prefix>") + 1


def test_a_long_document_is_cut_into_pieces_that_fit_and_lose_nothing(tmp_path):
    folder = byte_tokenizer(tmp_path)
    pieces = Cutter(folder, Recipe(row_tokens=32)).pieces("0123456789" * 10, "name")
    ids = [token for piece in pieces for token in piece.token_ids]
    assert max(len(piece.token_ids) for piece in pieces) <= 32
    assert read_back(folder, ids) == "0123456789" * 10


def test_every_moved_piece_of_a_long_document_fits_its_row(tmp_path):
    cutter = Cutter(byte_tokenizer(tmp_path), Recipe(row_tokens=40, fim=1.0))
    pieces = cutter.pieces("añb€" * 100, "name")
    assert max(len(piece.token_ids) for piece in pieces) <= 40
    assert {piece.fim for piece in pieces} >= {"psm", "spm"}


def test_the_same_name_and_seed_move_the_same_middle(tmp_path):
    folder = byte_tokenizer(tmp_path)
    made = [Cutter(folder, Recipe(fim=0.9, seed=seed)).pieces("some text of a document", "n") for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_a_tokenizer_without_fim_tokens_is_refused_with_what_to_do(tmp_path):
    folder = byte_tokenizer(tmp_path, special=["<|endoftext|>"])
    with pytest.raises(UnusableRecipe, match=r"no fill-in-the-middle tokens.*set fim to 0, or name three"):
        Cutter(folder, Recipe(fim=0.5))


def test_three_tokens_of_ones_own_choice_do_instead(tmp_path):
    folder = byte_tokenizer(tmp_path, special=["<|endoftext|>", "<a>", "<b>", "<c>"])
    (piece,) = Cutter(folder, Recipe(fim=1.0, fim_spm=0.0, fim_tokens=("<a>", "<b>", "<c>"))).pieces("text", "n")
    assert piece.token_ids[0] == Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<a>")
    with pytest.raises(UnusableRecipe, match="names <x>, which this tokenizer does not have"):
        Cutter(folder, Recipe(fim=1.0, fim_tokens=("<a>", "<b>", "<x>")))


def test_a_tokenizer_without_an_end_is_refused(tmp_path):
    with pytest.raises(UnusableRecipe, match="names no end token"):
        Cutter(byte_tokenizer(tmp_path, special=KNOWN[0]), Recipe())


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"languages": ("pyton",)}, "languages names pyton"),
        ({"fim": 1.5}, "fim is 1.5; it is a share"),
        ({"row_tokens": 8}, "row_tokens is 8"),
        ({"fim_tokens": ("<a>", "<a>", "<b>")}, "three different tokens"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_name(option, says):
    with pytest.raises(UnusableRecipe, match=says):
        Recipe(**option)


def test_rows_are_filled_with_the_longest_that_still_fits():
    assert pack([5, 4, 3, 2, 1], 8) == [[0, 2], [1, 3, 4]]


@given(st.lists(st.integers(1, 32), max_size=60))
def test_every_piece_is_in_one_row_and_no_row_is_too_long(lengths):
    rows = pack(lengths, 32)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= 32 for row in rows)
