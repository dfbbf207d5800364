"""What making a corpus costs in memory, and how that grows with the number of files.

Each build runs in a process of its own, which tells its largest resident size and its tokens per CPU-second; a tenth of
the files is measured beside it. The files are code made up from a seed, each unlike the others, so that every one is
remembered. The tokenizer has a token for each byte: a real one takes other time, and no more memory.

    python benchmarks/corpus.py                  # 20,000 files
    python benchmarks/corpus.py --files 2000
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
# Without this folder, whose modules would stand before the standard library's.
sys.path[:1] = [str(CHECKOUT), str(CHECKOUT / "platform")]

FILES = 20_000
PART = 10  # the smaller folder has a tenth
SHARD_TOKENS = 1 << 18
PER_FOLDER = 500


def write_files(root: Path, count: int) -> None:
    chance = random.Random(0)
    for number in range(count):
        folder = root / f"{number // PER_FOLDER:05}"
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"name{chance.randrange(100_000)}" for _ in range(60)]
        (folder / f"{number:07}.py").write_text("".join(f"{name} = {chance.random()}\n" for name in names))


def build(source: Path, work: Path) -> dict[str, float]:
    """In this process; prints what it took."""
    from rl_online.corpus.build import BuildRequest, build_corpus
    from rl_online.corpus.leaks import Problems
    from rl_online.corpus.recipe import Recipe
    from tests.rl_online.corpus.making import byte_tokenizer

    request = BuildRequest(
        source=source,
        root=work / "corpora",
        work=work / "work",
        checkpoint=byte_tokenizer(work / "checkpoint"),
        recipe=Recipe(shard_tokens=SHARD_TOKENS),
        problems=Problems([]),
    )
    started = time.process_time()
    corpus = build_corpus(request)
    assert corpus is not None
    seconds = time.process_time() - started
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "peak_mib": round(peak_mib, 1),
        "tokens": corpus.num_tokens,
        "tokens_per_cpu_s": corpus.num_tokens / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--build", type=Path, help="only build the corpus of this folder, in this process")
    options = parser.parse_args()
    if options.build:
        with tempfile.TemporaryDirectory() as work:
            print(json.dumps(build(options.build, Path(work))))
        return
    found = {}
    for name, count in (("part", options.files // PART), ("whole", options.files)):
        with tempfile.TemporaryDirectory() as folder:
            write_files(Path(folder), count)
            command = [sys.executable, __file__, "--build", folder]
            found[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    growth = found["whole"]["peak_mib"] / found["part"]["peak_mib"]
    print(json.dumps({"corpus.memory_growth": round(growth, 3), "files": options.files, **found}, indent=1))


if __name__ == "__main__":
    main()
