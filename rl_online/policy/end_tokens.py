"""Which tokens end a completion: one answer for whoever samples, serves or trains. Torch-free."""

import json
from collections.abc import Sequence
from pathlib import Path

Named = int | Sequence[int] | None  # what a file says as `eos_token_id`


def all_ends(config: Named, generation: Named) -> list[int]:
    """Those of the model's config and of its generation config, each once, the customary one first."""
    both = [[] if named is None else [named] if isinstance(named, int) else named for named in (config, generation)]
    return list(dict.fromkeys(token for named in both for token in named))


def named_ends(path: Path) -> Named:
    """Of config.json or generation_config.json; None where there is no such file."""
    found: Named = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
    return found
