"""A folder of small documents, a tokenizer that is exact to the byte, and a corpus made of them."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from evals.overlap import hashed
from rl_online.corpus.build import BuildRequest, build_corpus
from rl_online.corpus.leaks import Problems
from rl_online.corpus.recipe import Recipe
from rl_online.corpus.shards import read_shard

FIM = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"]


def byte_tokenizer(folder: Path, *, special=("<|endoftext|>", *FIM)) -> Path:
    """A checkpoint folder with a token for each byte and for each of `special`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def code(number: int, lines: int = 12) -> str:
    """A text that shares next to nothing with that of another number."""
    return "".join(f"def f{number}_{line}(a{number * 7 + line}): return {number * line + 3}\n" for line in range(lines))


def write_sources(root: Path, count: int = 12) -> Path:
    for number in range(count):
        language = ("py", "md", "c")[number % 3]
        file = root / f"d{number % 4}" / f"file{number:03}.{language}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code(number))
    return root


def request(tmp_path: Path, *, problems=(), source: Path | None = None, **recipe) -> BuildRequest:
    checkpoint = tmp_path / "checkpoint"
    if not checkpoint.exists():
        byte_tokenizer(checkpoint)
    return BuildRequest(
        source=source or write_sources(tmp_path / "source"),
        root=tmp_path / "corpora",
        work=tmp_path / "work",
        checkpoint=checkpoint,
        recipe=Recipe(**({"row_tokens": 256, "shard_tokens": 1024, "heldout": 0} | recipe)),
        problems=Problems(hashed(text) for text in problems),
    )


def build(tmp_path: Path, **options):
    return build_corpus(request(tmp_path, **options))


def parts_of(corpus, *, heldout=False):
    rows = (row for number in range(len(corpus.shards)) for row in read_shard(corpus, number))
    return [part for row in rows if row.is_heldout == heldout for part in row.parts]
