"""Text from tokens, for both kinds of tokenizer, and stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rl_online.serving.detokenize import ByteText, StopCutter, Vocabulary, WindowText, overlap
from tests.rl_online.serving import tiny

TEXT = "안녕 👩‍👩‍👧 naïve 🙂!"


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory) -> Vocabulary:
    folder = tmp_path_factory.mktemp("bytes")
    tiny.write_tokenizer(folder, [b"ab", b"\xec\x95", b"\x88 "])
    return Vocabulary(AutoTokenizer.from_pretrained(folder))


@pytest.fixture(scope="module")
def byte_fallback() -> Vocabulary:
    """A tokenizer in SentencePiece's manner: words with a mark for the space, bytes for whatever it lacks."""
    pieces = ["<unk>", "</s>", "▁a", "▁b", "c"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(
        models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Vocabulary(PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>"))


def streamed(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    stream = vocabulary.stream()
    return [stream.push(token_id) for token_id in ids]


def test_byte_tokens_come_out_a_whole_character_at_a_time(byte_level):
    texts = streamed(byte_level, list(TEXT.encode()))
    assert isinstance(byte_level.stream(), ByteText)
    assert "".join(texts) == TEXT
    assert all(len(text) <= 1 for text in texts)


def test_other_tokenizers_stream_the_same_way(byte_fallback):
    ids = [5 + byte for byte in TEXT.encode()]
    texts = streamed(byte_fallback, ids)
    assert isinstance(byte_fallback.stream(), WindowText)
    assert "".join(texts) == TEXT
    assert all("\ufffd" not in text for text in texts)


def test_spaces_between_words_survive_and_the_first_is_not_shown(byte_fallback):
    assert streamed(byte_fallback, [2, 3, 4, 2, 1]) == ["a", " b", "c", " a", ""]


def test_special_tokens_have_a_name_but_no_text(byte_level):
    assert streamed(byte_level, [tiny.START, 65, tiny.END]) == ["", "A", ""]
    assert byte_level.name_of(tiny.END) == "<|im_end|>"
    assert byte_level.bytes_of(tiny.END) == b""


def test_an_id_beyond_the_tokenizer_has_no_text(byte_level):
    assert streamed(byte_level, [65, 10_000, 66]) == ["A", "", "B"]


@given(data=st.binary(max_size=40))
def test_any_bytes_read_like_the_tokenizers_own_decoding(byte_level, data):
    whole = byte_level.tokenizer.decode(list(data))
    joined = "".join(streamed(byte_level, list(data)))
    assert whole.startswith(joined) and set(whole[len(joined) :]) <= {"\ufffd"}


@given(text=st.text(alphabet="abx", max_size=30), stops=st.lists(st.text("abx", min_size=1, max_size=4), max_size=3))
def test_cutting_by_character_equals_cutting_the_whole_text(text, stops):
    cutter, shown, stopped = StopCutter(stops), "", None
    for letter in text:
        cut = cutter.push(letter)
        shown += cut.text
        stopped = cut.stop
        if stopped:
            break
    else:
        shown += cutter.flush()
    # Streaming stops as soon as one is complete, so the earliest end decides, and of those that end there the longest.
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert (stopped is None) == (not ends)
    assert shown == (text if not ends else text[: min(ends)[1]])


def test_two_stops_in_one_piece_cut_before_the_first():
    assert StopCutter(("d", "b")).push("abcd").text == "a"


@pytest.mark.parametrize(
    ("text", "stop", "size"), [("xa", "abc", 1), ("xab", "abc", 2), ("abc", "abc", 0), ("x", "abc", 0)]
)
def test_overlap_counts_the_beginning_of_a_stop_at_the_end_of_a_text(text, stop, size):
    assert overlap(text, stop) == size
