"""What the token ids of a checkpoint mean: two networks' logits compare only where it is the same.

Torch-free: whoever starts an update asks too. Chat templates and the like are no part of it.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

FILES = ("tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model")  # the first that is there says it


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    digest: str  # sha256 over each token's text and id
    num_logits: int  # of the output layer, which may be wider than the vocabulary


def vocabulary_of(folder: Path) -> Vocabulary:
    """Raises ValueError for a folder without a tokenizer."""
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise ValueError(f"{folder.name} has no tokenizer; one of {', '.join(FILES)} is needed")
    config = json.loads((folder / "config.json").read_bytes())
    return Vocabulary(
        digest=hashlib.sha256(_meaning(path)).hexdigest(),
        num_logits=int(config.get("text_config", config)["vocab_size"]),
    )


def _meaning(path: Path) -> bytes:
    if path.name != "tokenizer.json":
        return path.read_bytes()
    values = json.loads(path.read_bytes())
    vocabulary = values["model"].get("vocab", {})
    if isinstance(vocabulary, list):  # unigram models hold [token, score] in the order of their ids
        vocabulary = {token: index for index, (token, _) in enumerate(vocabulary)}
    vocabulary = vocabulary | {one["content"]: one["id"] for one in values.get("added_tokens", [])}
    return json.dumps(sorted(vocabulary.items()), ensure_ascii=False).encode()
